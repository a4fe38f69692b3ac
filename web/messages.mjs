/**
 * Prints every text that a user of the library or the page can meet, one a line: the string and template literals of
 * src/, page/ and sw/ that are sentences, phrases or labels, and the texts of index.html. `${...}` is printed as {...}.
 *
 * tests/web/messages.txt holds the reviewed sentences; tests/web/test_typescript.py compares.
 */
import { readFileSync, readdirSync } from "node:fs";
import ts from "typescript";

/** A phrase, or one capitalised word. */
const TEXT = /[A-Za-z]\S* |[A-Za-z]{2}.* | [A-Za-z%]|^[A-Z][a-z]{3,}$/;
/** Not for people: selectors, media queries, colours, prefixes of cache names, and names of keys, headers and errors. */
const INTERNAL = /^[#.(]|^rgb\(|^edgekit-page|^M0 |^translate\(|^Arrow|^(Enter|Escape|Home|Suspending)$|^\w+Error$/;
const ATTRIBUTES = ["aria-label", "aria-roledescription", "alt", "title", "placeholder", "content"];

const show = (expression) => `{${expression.getText().replace(/\s+/g, " ")}}`;

/** The texts of one TypeScript file, in order. */
function literals(path) {
  const source = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true);
  const found = [];
  const add = (fixed, text) => {
    if (TEXT.test(fixed) && !INTERNAL.test(fixed)) found.push(text.trim());
  };
  const visit = (node) => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return;
    if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) add(node.text, node.text);
    if (ts.isTemplateExpression(node)) {
      const spans = node.templateSpans;
      const fixed = [node.head.text, ...spans.map((s) => s.literal.text)].join("0");
      add(fixed, node.head.text + spans.map((s) => show(s.expression) + s.literal.text).join(""));
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** The texts of the page: its elements' and those of attributes that people read or hear. */
function htmlTexts(path) {
  const html = readFileSync(path, "utf8").replace(/<!--.*?-->/gs, "");
  const found = [];
  for (const [, tag, text] of html.matchAll(/<([^>]*)>([^<]*)/g)) {
    for (const [, name, value] of tag.matchAll(/([\w-]+)="([^"]*)"/g)) {
      const read = ATTRIBUTES.includes(name) && !(name === "content" && !tag.includes('name="description"'));
      if (read && value) found.push(`${name}: ${value}`);
    }
    if (/[A-Za-z]/.test(text)) found.push(text.trim().replace(/\s+/g, " "));
  }
  return found;
}

for (const folder of ["src", "page", "sw"]) {
  for (const name of readdirSync(folder).filter((n) => n.endsWith(".ts")).sort()) {
    const found = [...new Set(literals(`${folder}/${name}`))];
    if (found.length > 0) console.log([`[${folder}/${name}]`, ...found, ""].join("\n"));
  }
}
console.log(["[index.html]", ...new Set(htmlTexts("index.html"))].join("\n"));
