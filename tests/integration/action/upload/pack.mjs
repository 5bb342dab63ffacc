// Packs a folder into a zip file as actions/upload-artifact 7 would send it, by its own libraries.
// node pack.mjs NODE_MODULES FOLDER ZIP
import { createWriteStream, promises } from 'node:fs'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { pathToFileURL } from 'node:url'

const [modules, folder, target] = process.argv.slice(2)
const library = path => import(pathToFileURL(join(modules, '@actions', path)).href)
const { create } = await library('glob/lib/glob.js')
const { getUploadZipSpecification } = await library('artifact/lib/internal/upload/upload-zip-specification.js')
const { createZipUploadStream } = await library('artifact/lib/internal/upload/zip.js')

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
if (files.length === 0) process.exit(3)
const [only] = globber.getSearchPaths()
const root = files.length === 1 && files[0] === only ? dirname(only) : only
await pipeline(await createZipUploadStream(getUploadZipSpecification(files, root)), createWriteStream(target))
