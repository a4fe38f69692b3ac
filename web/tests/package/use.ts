/** Uses every part of the package's interface; compiled strictly under each way of resolving modules. */
import { Bundle, type DeviceOption, EdgekitError, type Manifest, PolicyError, type Result, type Runner, type RunInput, bench, clearCache, isCached, load, preload } from "@edgekit/web";

export async function use(url: string, picture: Blob): Promise<readonly number[]> {
  const device: DeviceOption = "auto";
  const bundle = await Bundle.open(url);
  const manifest: Manifest = bundle.manifest;
  await preload(url, { device });
  await using runner: Runner = await load(bundle, { device, dtype: "q8", selfTest: "after", progress_callback: ({ progress }) => progress.toFixed() });
  const input: RunInput = { image: picture, query: "red circle", size: runner.fittingSize({ height: 300, width: 200 }) };
  const one: Result = await runner.run(input);
  const many: Result[] = await runner.run([{ image: new URL(url) }, { image: { data: new Uint8Array(27), height: 3, width: 3 } }]);
  const { p50 } = await bench(runner, input, { runs: 3 });
  const present: boolean | null = one.present;
  const outputs: readonly string[] = Object.entries(one.outputs).map(([name, { role, shape }]) => `${name} ${role} ${shape.join("x")}`);
  if (present && outputs.length > 0 && (await isCached(url))) await clearCache(url);
  return [p50, many.length, manifest.bundle.variants.length, ...one.relevance];
}

export function told(error: unknown): string {
  if (error instanceof PolicyError) return "allow the worker";
  return error instanceof EdgekitError ? `${error.code}: ${error.message}` : "";
}
