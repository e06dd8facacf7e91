// A table that a heading sorts, and a page that shows one study or workload alone. Without scripts it is whole, in order.
const form = document.querySelector(".filter");
const choices = [...form.querySelectorAll("select")];
const rows = [...document.querySelectorAll("tbody tr")];

function choose() {
  for (const one of document.querySelectorAll("[data-study]"))
    one.hidden = choices.some(({ name, value }) => value && one.dataset[name] !== value);
  form.querySelector("output").value = `${rows.filter(row => !row.hidden).length} of ${rows.length} claims`;
}
form.addEventListener("change", choose);
form.hidden = false;
choose();  // a browser may remember what was chosen

for (const heading of document.querySelectorAll(".claims th")) heading.firstChild.addEventListener("click", () => {
  const down = heading.ariaSort === "ascending", words = heading.className === "text";
  for (const other of heading.parentNode.cells) other.ariaSort = null;
  heading.ariaSort = down ? "descending" : "ascending";
  const missing = down ? -Infinity : Infinity;  // last either way
  const key = row => words ? row.cells[heading.cellIndex].textContent : Number(row.cells[heading.cellIndex].dataset.value ?? missing);
  const order = words ? (a, b) => key(a).localeCompare(key(b)) : (a, b) => (key(a) > key(b)) - (key(a) < key(b));
  rows.sort((a, b) => down ? order(b, a) : order(a, b));
  rows[0].parentNode.append(...rows);
});
