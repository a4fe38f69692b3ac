/**
 * DeviceChoice: remembers which device was quicker for a bundle, so that the next visit starts there.
 *
 * A choice holds for one bundle's address, GPU and browser. Where there is no storage (private windows) nothing is remembered.
 */
import type { Capabilities } from "./device.js";
import type { Device } from "./protocol.js";
import { withStorage } from "./selftest_cache.js";

const PREFIX = "edgekit-device-v1";

/** The device that was quicker at an earlier visit, or undefined. */
export function quickerDevice(bundle: string, has: Pick<Capabilities, "gpu">): Device | undefined {
  return withStorage((storage) => {
    const [device, key] = JSON.parse(storage.getItem(`${PREFIX} ${bundle}`) ?? "[]") as [Device?, string?];
    return key === keyOf(has) ? device : undefined;
  });
}

export function rememberDevice(bundle: string, has: Pick<Capabilities, "gpu">, device: Device): void {
  withStorage((storage) => {
    storage.setItem(`${PREFIX} ${bundle}`, JSON.stringify([device, keyOf(has)]));
  });
}

/** Remove the choice for a bundle. */
export function forgetDevice(bundle: string): void {
  withStorage((storage) => {
    storage.removeItem(`${PREFIX} ${bundle}`);
  });
}

function keyOf({ gpu }: Pick<Capabilities, "gpu">): string {
  return `${gpu?.name ?? ""} ${(globalThis.navigator as Navigator | undefined)?.userAgent ?? ""}`;
}
