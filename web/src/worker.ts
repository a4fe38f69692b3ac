/**
 * The worker: one backend attempt from start to end. Requests are answered one after the other, in order, but the
 * model is fetched while the runtime starts; memory is given back by ending the worker, since WebAssembly memory only grows.
 */
import { fetchModel, get } from "./download";
import { BackendError, UsageError, tell } from "./errors";
import { type CaseReport, judge, parseGolden } from "./golden";
import type { Tensor } from "./manifest";
import { type Sendable, checkCanvas, checkTensor, isTensor, normalise, pixels } from "./picture";
import { Session } from "./session";
import type { Answer, Answers, KeepRequest, Message, RawTensor, Reply, Request, RunRequest, SelfTestRequest } from "./wire";

const WORD = 250; // ms

let session: Session | undefined;
let inputs: readonly Tensor[] = [];
let outputs: readonly Tensor[] = [];
let last: Promise<void> = Promise.resolve();
let model: Uint8Array<ArrayBuffer> | undefined;

onmessage = ({ data }: MessageEvent<Message>) => {
  if (data.op === "fetch") void answer(data);
  else last = last.then(() => answer(data));
};

async function answer(message: Message): Promise<void> {
  try {
    const made = await act(message, message.id);
    post({ id: message.id, answer: made }, buffers(made));
  } catch (error) {
    post({ id: message.id, error: tell(error) });
  }
}

async function act(request: Request, id: number): Promise<Answers[keyof Answers]> {
  switch (request.op) {
    case "start": {
      // While its files are on the way nobody runs out of patience.
      const word = setInterval(() => { post({ id, loaded: 0, fromCache: false }); }, WORD);
      const quiet = (): void => { clearInterval(word); };
      const onlost = (reason: string): void => { post({ lost: reason }); };
      const [made, started] = await Session.start(request, { onarrived: quiet, onlost }).finally(quiet);
      session = made;
      return started;
    }
    case "fetch":
      [model] = await fetchModel(request.wanted, { onprogress: teller(id, request.wanted.file.size) });
      return null;
    case "keep":
      await keep(request, id);
      return null;
    case "open": {
      inputs = request.inputs;
      outputs = request.outputs;
      const opened = model;
      model = undefined;
      if (!opened) throw new BackendError("the model has not been fetched");
      await ready().open(opened);
      return null;
    }
    case "run":
      return run(request);
    case "feed":
      return ready().run(request.inputs);
    case "selfTest":
      return selfTest(request);
  }
}

/** Fetch and keep a model, and have the HTTP cache keep the other files. */
async function keep({ wanted, others }: KeepRequest, id: number): Promise<void> {
  const model = fetchModel(wanted, { onprogress: teller(id, wanted.file.size) }).then(([, kept]) => kept);
  const rest = others.map(async (url) => (await get(url, undefined, "default")).arrayBuffer());
  await Promise.all([model, ...rest]);
}

/** Tells how far a download is, ten times a second at most, and its end. */
function teller(id: number, size: number): (loaded: number, fromCache: boolean) => void {
  let told = 0;
  return (loaded, fromCache) => {
    const now = performance.now();
    if (loaded < size && now - told < 100) return;
    told = now;
    post({ id, loaded, fromCache });
  };
}

function ready(): Session {
  if (!session) throw new BackendError("the runtime has not started");
  return session;
}

async function run(request: RunRequest): Promise<Answer> {
  const before = performance.now();
  const image = await imageTensor(request.image, request.height, request.width);
  const preprocess = performance.now() - before;
  const feed: Record<string, RawTensor> = { [named("image").name]: image };
  const query = inputs.find((i) => i.kind === "query");
  if (query) {
    if (!request.query) throw new UsageError("the model needs a query: give words, or a vector");
    feed[query.name] = { dtype: "float32", shape: [1, request.query.length], data: request.query };
  }
  const started = performance.now();
  const raw = await ready().run(feed);
  const inference = performance.now() - started;
  const [, , height = 0, width = 0] = image.shape;
  return { ...read(raw, height, width), preprocess, inference };
}

async function imageTensor(source: Sendable, height: number, width: number): Promise<RawTensor> {
  const { low, high } = named("image");
  if (isTensor(source)) {
    checkTensor(source);
    return { dtype: "float32", shape: [1, 3, source.height, source.width], data: source.data };
  }
  const data = normalise(await pixels(source, height, width), low, high);
  return { dtype: "float32", shape: [1, 3, height, width], data };
}

function read(raw: Readonly<Record<string, RawTensor>>, height: number, width: number): Omit<Answer, "preprocess" | "inference"> {
  const [scores, ...others] = outputs.filter((o) => o.role === "scores").map((o) => o.name);
  const relevance = raw[scores ?? ""]?.data as Float32Array | undefined;
  if (!relevance) throw new BackendError(`the model gave no scores, only ${Object.keys(raw).join(", ")}`);
  // N patches in the picture's proportions: a patch is square.
  const rows = Math.round(Math.sqrt((relevance.length * height) / width));
  const features = raw[outputs.find((o) => o.role === "features")?.name ?? ""];
  return {
    relevance,
    rows,
    columns: Math.round(relevance.length / rows),
    budgets: integers(raw, "counts"),
    indices: integers(raw, "ranking"),
    tokens: features ? { data: features.data as Float32Array, shape: features.shape.slice(1) } : null,
    parts: Object.fromEntries(others.map((name) => [name, raw[name]?.data as Float32Array])),
  };
}

function integers(raw: Readonly<Record<string, RawTensor>>, role: string): Int32Array {
  const found = raw[outputs.find((o) => o.role === role)?.name ?? ""];
  return found ? Int32Array.from(found.data as unknown as ArrayLike<number | bigint>, Number) : new Int32Array();
}

/** Run the golden vectors through the very path that pictures take. */
async function selfTest(request: SelfTestRequest): Promise<Answers["selfTest"]> {
  checkCanvas();
  const cases: CaseReport[] = [];
  for (const golden of parseGolden(request.json, request.binary, request.url)) {
    const { data, height, width } = golden.image;
    const rgba = new Uint8ClampedArray(4 * height * width).fill(255);
    for (let from = 0, to = 0; from < data.length; to++) {
      for (let channel = 0; channel < 3; channel++) rgba[to++] = data[from++] ?? 0;
    }
    const image = new ImageData(rgba, width, height);
    const got = await run({ op: "run", image, query: golden.query, height, width });
    cases.push(judge(golden, got, request.limit, got.inference));
  }
  return { pass: cases.every((c) => c.pass), cases };
}

function named(kind: string): Tensor {
  const found = inputs.find((i) => i.kind === kind);
  if (!found) throw new UsageError(`the model has no input of the kind "${kind}"`);
  return found;
}

function post(reply: Reply, transfer: Transferable[] = []): void {
  postMessage(reply, { transfer });
}

function buffers(made: Answers[keyof Answers]): Transferable[] {
  if (made === null || typeof made !== "object") return [];
  const found = new Set<ArrayBuffer>();
  for (const value of Object.values(made)) {
    const view = ArrayBuffer.isView(value) ? value : (value as RawTensor | null)?.data;
    if (ArrayBuffer.isView(view) && view.buffer instanceof ArrayBuffer) found.add(view.buffer);
  }
  return [...found];
}
