// Packs a folder into a zip file as actions/upload-artifact 7 would send it, by its own libraries.
// node pack.mjs NODE_MODULES; each line of its input is [FOLDER, ZIP] in JSON. It answers `answer: packed`, `nothing` or
// the error; the libraries print too.
import { createWriteStream, promises } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { pipeline } from 'node:stream/promises'
import { pathToFileURL } from 'node:url'

const [modules] = process.argv.slice(2)
const library = path => import(pathToFileURL(join(modules, '@actions', path)).href)
const { create } = await library('glob/lib/glob.js')
const { getUploadZipSpecification } = await library('artifact/lib/internal/upload/upload-zip-specification.js')
const { createZipUploadStream } = await library('artifact/lib/internal/upload/zip.js')

async function pack(folder, target) {
  const globber = await create(folder, {
    followSymbolicLinks: true,
    implicitDescendants: true,
    omitBrokenSymbolicLinks: true,
    excludeHiddenFiles: true
  })
  const files = []
  for (const path of await globber.glob()) {
    if (!(await promises.stat(path)).isDirectory()) files.push(path)
  }
  if (files.length === 0) return 'nothing'
  const [only] = globber.getSearchPaths()
  const root = files.length === 1 && files[0] === only ? dirname(only) : only
  await pipeline(await createZipUploadStream(getUploadZipSpecification(files, root)), createWriteStream(target))
  return 'packed'
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await pack(...JSON.parse(line)).catch(error => JSON.stringify(String(error.stack)))
  process.stdout.write(`\nanswer: ${answer}\n`)
}
