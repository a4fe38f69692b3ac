/** Comparison: a second precision beside the first one: its runner, its map, and how far the two results differ. */
import type { Bundle, Dtype, DeviceOption, Info } from "../src/index";
import { DISPLAY_NAMES, backendLabel, describeDifference } from "./device_panel";
import { element } from "./dom";
import type { MapView } from "./map_view";
import { type InferenceRequest, type InferenceResult, RunnerSlot } from "./runner_slot";

export class Comparison {
  private readonly slot: RunnerSlot;
  private readonly line = element("#difference", HTMLElement);
  private first: readonly [InferenceResult, Info] | undefined;
  private second: InferenceResult | undefined;
  private picture: ImageBitmap | undefined;

  constructor(
    bundle: Promise<Bundle>,
    private readonly view: MapView,
    onerror: (error: unknown) => void,
  ) {
    this.slot = new RunnerSlot(bundle, {
      onload: () => undefined,
      onprogress: (share) => { view.setProgress(share); },
      onresult: (result) => { this.showSecond(result); },
      onerror,
    });
  }

  /** Compare with a precision; "" ends it. */
  choose(dtype: Dtype | "", device: DeviceOption): void {
    const on = dtype !== "";
    document.body.toggleAttribute("data-compare", on);
    this.view.hidden = !on;
    this.line.hidden = !on;
    this.line.textContent = on ? "Comparing" : "";
    this.second = undefined;
    if (!on) {
      this.slot.close();
      return;
    }
    if (this.picture) this.view.showPicture(this.picture);
    void this.slot.load(device, dtype);
  }

  showPicture(picture: ImageBitmap): void {
    this.picture = picture;
    this.clear();
  }

  /** Forget what belongs to another query. */
  clear(): void {
    this.first = this.second = undefined;
    this.slot.clearRequests();
    if (this.picture) this.view.showPicture(this.picture);
  }

  submit(request: InferenceRequest): void {
    this.slot.submit(request);
  }

  showFirst(result: InferenceResult, info: Info): void {
    this.first = [result, info];
    this.describe();
  }

  private showSecond(inference: InferenceResult): void {
    const { request, result } = inference;
    if (request.image !== this.picture || result.relevance.length === 0) return;
    this.second = inference;
    const info = this.slot.runner?.info;
    this.view.showResult(result, this.slot.runner?.threshold ?? null);
    this.view.label = `Second relevance map for “${request.query}”`;
    if (info) this.view.setCaption(backendLabel(info, result.inference));
    this.describe();
  }

  /** Compare the two results, where both are for the same query. */
  private describe(): void {
    const other = this.slot.runner?.info;
    const [first, info] = this.first ?? [];
    const same = first && this.second && first.request.query === this.second.request.query;
    this.line.textContent =
      same && info && other && this.second
        ? describeDifference(first.result, this.second.result, [DISPLAY_NAMES[info.dtype] ?? "", DISPLAY_NAMES[other.dtype] ?? ""])
        : "Comparing";
  }
}
