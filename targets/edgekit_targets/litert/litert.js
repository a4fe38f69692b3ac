// What runs in the page of LiteRT.js, beside ../browser.js: one model, opened once.
"use strict";
globalThis.openModel = async () => {
  try {
    globalThis.litert = await import("@litertjs/core");
    await globalThis.litert.loadLiteRt("/@litertjs/core/wasm/");
    globalThis.model = await globalThis.litert.loadAndCompile("/model", { accelerator: "wasm" });
    const names = (details) => details.map(({ name }) => name).sort();
    return { inputs: names(globalThis.model.getInputDetails()), outputs: names(globalThis.model.getOutputDetails()) };
  } catch (error) {
    return { error: String(error) };
  }
};
globalThis.answerModel = async (inputs) => {
  const held = [];
  const kept = (tensor) => (held.push(tensor), tensor);
  try {
    const feeds = Object.entries(globalThis.decode(inputs)).map(([n, t]) => [n, kept(new globalThis.litert.Tensor(t.data, t.shape))]);
    const answers = await globalThis.model.run(Object.fromEntries(feeds));
    const outputs = {};
    for (const { name, dtype, shape } of globalThis.model.getOutputDetails()) {
      outputs[name] = { dtype, shape: [...shape], data: globalThis.text(kept(answers[name]).toTypedArray()) };
    }
    return { outputs };
  } catch (error) {
    return { error: String(error) };
  } finally {
    for (const tensor of held) tensor.delete();
  }
};
