/** UrlState: the state of the page in its URL, so that a link shows the same. */
import type { DeviceOption, DtypeOption } from "../src/index";
import type { View } from "./map_renderer";

export interface PageState {
  readonly query: string;
  readonly sample: string;
  readonly view: View;
  readonly device: DeviceOption;
  readonly dtype: DtypeOption;
  readonly compare: string;
}

const VALUES: Readonly<Record<string, readonly string[]>> = {
  view: ["heat", "focus", "tokens", "picture"],
  device: ["auto", "webgpu", "webnn", "wasm"],
  dtype: ["auto", "fp32", "fp16", "q8"],
  compare: ["", "fp32", "fp16", "q8"],
};

/** Parse the query part of the URL; a missing or invalid value becomes the first possible one. */
export function parseUrlState(search: string): PageState {
  const parameters = new URLSearchParams(search);
  const validated = (name: string): string => {
    const possible = VALUES[name] ?? [];
    const value = parameters.get(name) ?? "";
    return possible.includes(value) ? value : (possible[0] ?? "");
  };
  return {
    query: (parameters.get("q") ?? "").slice(0, 120),
    sample: parameters.get("sample") ?? "",
    view: validated("view") as View,
    device: validated("device") as DeviceOption,
    dtype: validated("dtype") as DtypeOption,
    compare: validated("compare"),
  };
}

export function formatUrlState(state: PageState): string {
  const parameters = new URLSearchParams();
  if (state.query) parameters.set("q", state.query);
  if (state.sample) parameters.set("sample", state.sample);
  for (const name of ["view", "device", "dtype", "compare"] as const) {
    if (state[name] !== VALUES[name]?.[0]) parameters.set(name, state[name]);
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}
