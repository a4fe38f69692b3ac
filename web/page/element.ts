/** An element of the page that must be there, of a known kind. */
export function element<T extends Element>(selector: string, kind: new () => T, root: ParentNode = document): T {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page lacks ${selector}`);
  return found;
}

/** A new element with a text or children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  content: string | readonly Node[] = "",
  attributes: Readonly<Record<string, string>> = {},
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (typeof content === "string") made.textContent = content;
  else made.append(...content);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A drawing context; the page cannot do without. */
export function context2d(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser gives no drawing context");
  return context;
}

/** Rows of a description list. */
export function describe(list: HTMLDListElement, rows: readonly (readonly [string, string])[]): void {
  list.replaceChildren(...rows.map(([term, value]) => make("div", [make("dt", term), make("dd", value)])));
}
