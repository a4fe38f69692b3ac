/** Dom: finds and creates elements. */

/** The element of a selector. @throws Error if it is missing or of another class. */
export function element<T extends Element>(selector: string, kind: new () => T, root: ParentNode = document): T {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no element ${selector}`);
  return found;
}

/** Create an element with a text or children. */
export function createElement<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  content: string | readonly Node[] = "",
  attributes: Readonly<Record<string, string>> = {},
): HTMLElementTagNameMap[K] {
  const created = document.createElement(tag);
  if (typeof content === "string") created.textContent = content;
  else created.append(...content);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  return created;
}

/** Create an element of SVG with a text or children. */
export function createSvg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>>,
  content: string | readonly Node[] = "",
): SVGElementTagNameMap[K] {
  const created = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  if (typeof content === "string") created.textContent = content;
  else created.append(...content);
  return created;
}

/** The 2D context of a canvas. @throws Error if the browser provides none. */
export function context2d(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser provides no 2D canvas");
  return context;
}

/** Replace the rows of a description list. */
export function fillDescriptionList(list: HTMLDListElement, rows: readonly (readonly [string, string])[]): void {
  list.replaceChildren(...rows.map(([term, value]) => createElement("div", [createElement("dt", term), createElement("dd", value)])));
}
