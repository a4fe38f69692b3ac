// What runs in the page of a bundle, or of LiteRT.js: arrays come and go as base64 texts.
"use strict";
globalThis.bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
globalThis.text = (view) => {
  const raw = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  let made = "";
  for (let at = 0; at < raw.length; at += 32768) made += String.fromCharCode(...raw.subarray(at, at + 32768));
  return btoa(made);
};
globalThis.decode = (inputs) => {
  const types = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array };
  const made = ({ dtype, shape, data }) => ({ dtype, shape, data: new types[dtype](globalThis.bytes(data).buffer) });
  return Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, made(tensor)]));
};
globalThis.feed = async (runner, inputs) => {
  const { text } = globalThis;
  try {
    const outputs = await runner.feed(globalThis.decode(inputs));
    const { device, dtype } = runner.info;
    const plain = ([name, { dtype, shape, data }]) => [name, { dtype, shape, data: text(data) }];
    return { device, dtype, outputs: Object.fromEntries(Object.entries(outputs).map(plain)) };
  } catch (error) {
    return { error: String(error) };
  }
};
globalThis.ask = async (runner, { rgba, width, height, query, words }) => {
  const { bytes, text } = globalThis;
  try {
    const image = new ImageData(new Uint8ClampedArray(bytes(rgba).buffer), width, height);
    const vector = query === null ? undefined : new Float32Array(bytes(query).buffer);
    const found = await runner.run({ image, query: words.length ? words : vector, size: { width, height } });
    const { device, dtype } = runner.info;
    // What has a field of its own is taken from there, since that is what users read.
    const own = {
      scores: { dtype: "float32", shape: [1, found.relevance.length], data: found.relevance },
      counts: { dtype: "int32", shape: [1, found.budgets.length], data: found.budgets },
      ranking: { dtype: "int32", shape: [1, found.indices.length], data: found.indices },
      features: found.tokens && { dtype: "float32", shape: [1, ...found.tokens.shape], data: found.tokens.data },
    };
    const outputs = {};
    for (const [name, output] of Object.entries(found.outputs)) {
      const { dtype, shape, data } = own[output.role] ?? output;
      delete own[output.role]; // a second output of the role has no field
      outputs[name] = { dtype, shape, data: text(data) };
    }
    return { device, dtype, outputs, present: found.present };
  } catch (error) {
    return { error: String(error) };
  }
};
globalThis.openBundle = async ([device, dtype, timeout]) => {
  const { load } = await import(new URL("edgekit.js", location.href).href);
  try {
    const open = () => load("./", { device, dtype, timeout, selfTest: false });
    globalThis.runners = [await open()];
    globalThis.another = open;
    return { info: globalThis.runners[0].info };
  } catch (error) {
    return { error: String(error) };
  }
};
globalThis.openAnother = async () => {
  if (globalThis.runners.length > 1) return;
  try {
    const runner = await globalThis.another();
    const [{ device, dtype }, own] = [globalThis.runners[0].info, runner.info];
    if (device === own.device && dtype === own.dtype) globalThis.runners.push(runner);
    else await runner.dispose();
  } catch {
    // One answers everything: what it is asked stays the same.
  }
};
globalThis.closeOthers = async () => {
  for (const runner of globalThis.runners.splice(1)) await runner.dispose();
};
globalThis.answer = async (runs) => {
  const found = [];
  let next = 0;
  const work = async (runner) => {
    while (next < runs.length) {
      const at = next++;
      const { picture, inputs } = runs[at];
      found[at] = picture ? await globalThis.ask(runner, picture) : await globalThis.feed(runner, inputs);
      found[at].lost = runner.info.fallbacks.find(({ code }) => code === "DEVICE_LOST")?.reason ?? "";
    }
  };
  await Promise.all(globalThis.runners.map(work));
  return found;
};
globalThis.clock = async ([inputs, seconds, warmUps, runs]) => {
  const feeds = globalThis.decode(inputs);
  const time = async () => {
    const start = performance.now();
    await globalThis.runners[0].feed(feeds);
    return performance.now() - start;
  };
  for (let i = 0; i < warmUps; i++) await time();
  const taken = [];
  const start = performance.now();
  while (taken.length < runs || performance.now() - start < 1000 * seconds) taken.push(await time());
  return taken;
};
globalThis.visit = async ([device, dtype, timeout, inputs]) => {
  const start = performance.now();
  const { load } = await import(new URL("edgekit.js", location.href).href);
  const runner = await load("./", { device, dtype, timeout });
  await runner.feed(globalThis.decode(inputs));
  return performance.now() - start;
};
