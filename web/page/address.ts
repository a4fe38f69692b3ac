/** Address: what the page shows, in its URL, so that a link shows the same. */
import type { DeviceOption, DtypeOption } from "../src/index";
import type { View } from "./paint";

export interface Shown {
  readonly query: string;
  readonly sample: string;
  readonly view: View;
  readonly device: DeviceOption;
  readonly dtype: DtypeOption;
  readonly compare: string;
}

const POSSIBLE: Readonly<Record<string, readonly string[]>> = {
  view: ["heat", "focus", "tokens", "picture"],
  device: ["auto", "webgpu", "wasm"],
  dtype: ["auto", "fp32", "fp16", "q8"],
  compare: ["", "fp32", "fp16", "q8"],
};

/** Read the address; what it does not say, or says wrongly, is the first possibility. */
export function readAddress(search: string): Shown {
  const asked = new URLSearchParams(search);
  const one = (name: string): string => {
    const possible = POSSIBLE[name] ?? [];
    const value = asked.get(name) ?? "";
    return possible.includes(value) ? value : (possible[0] ?? "");
  };
  return {
    query: (asked.get("q") ?? "").slice(0, 120),
    sample: asked.get("sample") ?? "",
    view: one("view") as View,
    device: one("device") as DeviceOption,
    dtype: one("dtype") as DtypeOption,
    compare: one("compare"),
  };
}

export function writeAddress(shown: Shown): string {
  const said = new URLSearchParams();
  if (shown.query) said.set("q", shown.query);
  if (shown.sample) said.set("sample", shown.sample);
  for (const name of ["view", "device", "dtype", "compare"] as const) {
    if (shown[name] !== POSSIBLE[name]?.[0]) said.set(name, shown[name]);
  }
  const text = said.toString();
  return text === "" ? "" : `?${text}`;
}
