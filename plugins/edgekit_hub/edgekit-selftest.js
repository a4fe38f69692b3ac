/**
 * Written by edgekit beside a model for transformers.js: which dtype and device give the recorded outputs here?
 *
 *     const { device, dtype } = await selftest("./model/", ort);
 *     const classify = await pipeline("text-classification", "model", { device, dtype });
 *
 * @param {string | URL} folder The model's folder.
 * @param {object} ort The module onnxruntime-web, of a build with WebGPU.
 * @param {{ devices?: string[], dtypes?: string[], runs?: number }} options What to try, and how many runs to time. A
 *     GPU in software is tried only if `devices` names "webgpu".
 * @returns The quickest that passed: { device, dtype, ms, tried }, with the median of the runs in ms.
 * @throws Error with `tried` if none passed; TypeError if the folder has no self-test.
 */
export async function selftest(folder, ort, { devices, dtypes, runs = 5 } = {}) {
  const base = new URL(String(folder).replace(/\/?$/, "/"), location.href);
  const [json, binary] = await Promise.all(["golden.json", "golden.bin"].map((name) => load(new URL(name, base))));
  const golden = JSON.parse(new TextDecoder().decode(json));
  if (golden.format !== 3 || !golden.files || !golden.cases.length) throw new TypeError(`${base} has no self-test that this module reads`);
  const inputs = golden.cases.map((row) => feed(ort, row, golden.picture, binary));
  const tried = [];
  for (const dtype of dtypes ?? Object.keys(golden.files)) {
    let model;
    for (const device of devices ?? ["webgpu", "wasm"]) {
      const attempt = { device, dtype, pass: false, ms: null, reason: "" };
      tried.push(attempt);
      let session;
      try {
        if (!(dtype in golden.files)) throw new Error("the folder has no such dtype");
        if (device === "webgpu") await requireGpu(dtype, devices !== undefined);
        model ??= new Uint8Array(await load(new URL(golden.files[dtype], base)));
        session = await ort.InferenceSession.create(model, { executionProviders: [device] });
        const other = device === "webgpu" ? golden.limits.delegated : {};
        for (const [i, { expected }] of golden.cases.entries()) {
          attempt.reason ||= failure(expected, await session.run(inputs[i]), golden.limits[dtype], other, binary);
        }
        attempt.pass = !attempt.reason;
        if (attempt.pass) attempt.ms = await median(runs, () => session.run(inputs[0]));
      } catch (error) {
        attempt.reason = String(error?.message ?? error);
      }
      await session?.release();
    }
  }
  const [best] = tried.filter(({ pass }) => pass).sort((a, b) => a.ms - b.ms);
  if (best) return { device: best.device, dtype: best.dtype, ms: best.ms, tried };
  const reasons = tried.map(({ device, dtype, reason }) => `${dtype} on ${device}: ${reason}`).join("; ");
  throw Object.assign(new Error(`no variant of ${base} gives the recorded outputs here: ${reasons}`), { tried });
}

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array };

async function load(url) {
  const response = await fetch(url);
  if (!response.ok) throw new TypeError(`${url} answers ${response.status}`);
  return response.arrayBuffer();
}

async function requireGpu(dtype, software) {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("this browser has no WebGPU adapter");
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info ?? {};
  const slow = isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|basic render/i.test([vendor, architecture, description]);
  if (slow && !software) throw new Error("the GPU is a piece of software");
  if (dtype === "fp16" && !adapter.features.has("shader-f16")) throw new Error("the GPU has no 16-bit floats");
}

function array({ offset, shape, dtype, step }, binary) {
  const count = Math.ceil(shape.reduce((a, b) => a * b, 1) / step);
  return new ARRAYS[dtype](binary.slice(offset, offset + count * ARRAYS[dtype].BYTES_PER_ELEMENT));
}

/** Return a case's tensors; a picture of bytes [H, W, 3] becomes [1, 3, H, W] in the model's range. */
function feed(ort, { image, inputs }, picture, binary) {
  const tensors = Object.entries(inputs).map(([name, part]) => [name, new ort.Tensor(part.dtype, array(part, binary), part.shape)]);
  if (image) {
    const [[height, width, channels], bytes, area] = [image.shape, array(image, binary), image.shape[0] * image.shape[1]];
    const value = (_, i) => picture.low + ((picture.high - picture.low) * bytes[(i % area) * channels + Math.floor(i / area)]) / 255;
    tensors.push([picture.name, new ort.Tensor("float32", Float32Array.from(bytes, value), [1, channels, height, width])]);
  }
  return Object.fromEntries(tensors);
}

/** Say which output is beyond its limits, which are the larger of two tables'; empty if none is. */
function failure(expected, outputs, limits, other, binary) {
  for (const [name, part] of Object.entries(expected)) {
    const output = outputs[name];
    if (String(output?.dims) !== String(part.shape)) return `the output "${name}" is missing or has another shape`;
    const values = array(part, binary);
    const off = Array.from(values, (value, i) => Math.abs(Number(value) - Number(output.data[i * part.step])));
    const errors = {
      max_abs: off.reduce((a, b) => Math.max(a, b), 0),
      rms: Math.sqrt(off.reduce((sum, b) => sum + b * b, 0) / off.length),
      wrong: off.filter((b) => b !== 0).length / off.length,
    };
    for (const [metric, own] of Object.entries(limits[name])) {
      const limit = Math.max(own, other?.[name]?.[metric] ?? 0);
      if (!(errors[metric] <= limit)) return `the ${metric} of the output "${name}" is ${errors[metric]?.toPrecision(2)} (limit ${limit})`;
    }
  }
  return "";
}

async function median(runs, call) {
  const times = [];
  while (times.length < runs) {
    const start = performance.now();
    await call();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[times.length >> 1];
}
