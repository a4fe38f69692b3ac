import { expect, test } from "vitest";
import { parseUrlState, formatUrlState } from "../page/url_state";

test("the URL holds the state of the page, and invalid values are replaced", () => {
  const state = parseUrlState("?q=red+circle&sample=003&view=tokens&dtype=q8&device=evil&compare=fp32");
  expect(state).toEqual({ query: "red circle", sample: "003", view: "tokens", device: "auto", dtype: "q8", compare: "fp32" });
  expect(parseUrlState(formatUrlState(state))).toEqual(state);
  expect(formatUrlState(parseUrlState(""))).toBe("");
});
