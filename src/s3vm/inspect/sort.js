"use strict";
// A click on the head of a column sorts the table by it, another one the other way round.
const collator = new Intl.Collator(undefined, { numeric: true });
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const value = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rising = head.ariaSort !== "ascending";
      const rows = [...body.rows].sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        const difference = parseFloat(a) - parseFloat(b);
        return (rising ? 1 : -1) * (Number.isNaN(difference) ? collator.compare(a, b) : difference);
      });
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = rising ? "ascending" : "descending";
      body.append(...rows);
    });
  });
}
