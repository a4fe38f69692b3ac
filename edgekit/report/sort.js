"use strict";
// Sorts the table of verdicts by a column: each row is a tbody.
for (const table of document.querySelectorAll("table.summary")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (body) => body.rows[0].cells[column].dataset.sort ?? body.rows[0].cells[column].textContent.trim();
      const value = (body) => (key(body) === "" ? NaN : Number(key(body)));
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (!Number.isNaN(x) && !Number.isNaN(y)) return down ? y - x : x - y;
        if (Number.isNaN(x) !== Number.isNaN(y) && "sort" in a.rows[0].cells[column].dataset) return Number.isNaN(x) ? 1 : -1;
        return key(a).localeCompare(key(b)) * (down ? -1 : 1);
      };
      table.append(...[...table.tBodies].sort(order));
    });
  });
}
