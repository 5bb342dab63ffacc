"use strict";
const quoted = (cell) => {
  const text = cell === null ? "" : String(cell);
  // A spreadsheet must not take a record's text for a formula.
  const safe = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
};
for (const button of document.querySelectorAll("button[data-csv]")) button.hidden = false;
// A page that grows gets new buttons.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-csv]");
  if (!button) return;
  const name = button.dataset.csv;
  const numbers = JSON.parse(document.getElementById("numbers-" + name).textContent);
  const lines = [numbers.columns, ...numbers.rows].map((row) => row.map(quoted).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  link.download = name + ".csv";
  link.click();
  URL.revokeObjectURL(link.href);
});
