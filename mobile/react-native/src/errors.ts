import type { Code } from "@edgekit/web/types";

const CODES: ReadonlySet<string> = new Set<Code>(["MANIFEST", "ASSET_MISSING", "HASH_MISMATCH", "BACKEND", "SELF_TEST", "IMAGE", "QUERY", "USAGE"]);

/** An error with the codes of the web library, and a sentence for the user of the app. */
export class EdgekitError extends Error {
  override readonly name = "EdgekitError";

  constructor(
    readonly code: Code,
    message: string,
  ) {
    super(message);
  }
}

/** Return the error of a native call as an EdgekitError; one without a code of edgekit's is of the runtime. */
export function toEdgekitError(thrown: unknown): EdgekitError {
  if (thrown instanceof EdgekitError) return thrown;
  const { code, message } = (thrown ?? {}) as { readonly code?: unknown; readonly message?: unknown };
  const isCode = typeof code === "string" && CODES.has(code);
  return new EdgekitError(isCode ? (code as Code) : "BACKEND", typeof message === "string" ? message : String(thrown));
}
