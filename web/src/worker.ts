/**
 * Worker: runs one backend from its start to its end.
 *
 * Requests are handled in order, one after the other, except that the model is fetched while the runtime starts.
 * WebAssembly memory never shrinks, so memory is freed by terminating the worker.
 */
import { fetchModel, fetchResponse } from "./download";
import { BackendError, UsageError, serializeError } from "./errors";
import { type CaseReport, evaluateCase, parseGolden } from "./golden";
import type { Tensor } from "./manifest";
import { type TransferableImage, checkCanvasReadback, checkTensor, isTensor, normalise, toPixels } from "./preprocessing";
import type {
  ModelOutput,
  PreloadRequest,
  RawTensor,
  Request,
  Responses,
  RunRequest,
  SelfTestRequest,
  WorkerReply,
  WorkerRequest,
} from "./protocol";
import { Session } from "./session";

const HEARTBEAT = 250; // ms between messages that restart the request's timer
const PROGRESS_INTERVAL = 100; // ms

let session: Session | undefined;
let inputs: readonly Tensor[] = [];
let outputs: readonly Tensor[] = [];
let lastRequest: Promise<void> = Promise.resolve();
let model: Uint8Array<ArrayBuffer> | undefined;

onmessage = ({ data }: MessageEvent<WorkerRequest>) => {
  if (data.op === "fetch") void respond(data);
  else lastRequest = lastRequest.then(() => respond(data));
};

async function respond(message: WorkerRequest): Promise<void> {
  try {
    const response = await handle(message, message.id);
    post({ id: message.id, response }, transferList(response));
  } catch (error) {
    post({ id: message.id, error: serializeError(error) });
  }
}

async function handle(request: Request, id: number): Promise<Responses[keyof Responses]> {
  switch (request.op) {
    case "start": {
      // The time limit does not include the download of the runtime's files.
      const heartbeat = setInterval(() => { post({ id, loaded: 0, fromCache: false }); }, HEARTBEAT);
      const stopHeartbeat = (): void => { clearInterval(heartbeat); };
      const onlost = (reason: string): void => { post({ deviceLost: reason }); };
      const [created, started] = await Session.start(request, { onarrived: stopHeartbeat, onlost }).finally(stopHeartbeat);
      session = created;
      return started;
    }
    case "fetch":
      [model] = await fetchModel(request.model, { onprogress: progressReporter(id, request.model.file.size) });
      return null;
    case "preload":
      await preload(request, id);
      return null;
    case "open": {
      inputs = request.inputs;
      outputs = request.outputs;
      const opened = model;
      model = undefined;
      if (!opened) throw new BackendError("the model has not been fetched");
      await startedSession().open(opened);
      return null;
    }
    case "run":
      return run(request);
    case "feed":
      return startedSession().run(request.inputs);
    case "selfTest":
      return selfTest(request);
  }
}

/** Fetch and store a model, and load the other files into the HTTP cache. */
async function preload({ model, otherUrls }: PreloadRequest, id: number): Promise<void> {
  const storedModel = fetchModel(model, { onprogress: progressReporter(id, model.file.size) }).then(([, stored]) => stored);
  const rest = otherUrls.map(async (url) => (await fetchResponse(url, undefined, "default")).arrayBuffer());
  await Promise.all([storedModel, ...rest]);
}

/** Reports the progress of a download: at limited intervals, and its end. */
function progressReporter(id: number, size: number): (loaded: number, fromCache: boolean) => void {
  let lastReport = 0;
  return (loaded, fromCache) => {
    const now = performance.now();
    if (loaded < size && now - lastReport < PROGRESS_INTERVAL) return;
    lastReport = now;
    post({ id, loaded, fromCache });
  };
}

function startedSession(): Session {
  if (!session) throw new BackendError("the runtime has not started");
  return session;
}

async function run(request: RunRequest): Promise<ModelOutput> {
  const before = performance.now();
  const image = await imageTensor(request.image, request.height, request.width);
  const preprocess = performance.now() - before;
  const feed: Record<string, RawTensor> = { [inputOfKind("image").name]: image };
  const query = inputs.find((i) => i.kind === "query");
  if (query) {
    if (!request.query) throw new UsageError("the model needs a query: pass words or a vector");
    feed[query.name] = { dtype: "float32", shape: [1, request.query.length], data: request.query };
  }
  const started = performance.now();
  const raw = await startedSession().run(feed);
  const inference = performance.now() - started;
  const [, , height = 0, width = 0] = image.shape;
  return { ...toModelOutput(raw, height, width), preprocess, inference };
}

async function imageTensor(source: TransferableImage, height: number, width: number): Promise<RawTensor> {
  const { low, high, fit } = inputOfKind("image");
  if (isTensor(source)) {
    checkTensor(source);
    return { dtype: "float32", shape: [1, 3, source.height, source.width], data: source.data };
  }
  const data = normalise(await toPixels(source, height, width, fit), low, high);
  return { dtype: "float32", shape: [1, 3, height, width], data };
}

function toModelOutput(raw: Readonly<Record<string, RawTensor>>, height: number, width: number): Omit<ModelOutput, "preprocess" | "inference"> {
  const [scores, ...others] = outputs.filter((o) => o.role === "scores").map((o) => o.name);
  const relevance = (raw[scores ?? ""]?.data ?? new Float32Array()) as Float32Array;
  // Patches are square, so the grid has the proportions of the image.
  const rows = Math.round(Math.sqrt((relevance.length * height) / width));
  const features = raw[outputs.find((o) => o.role === "features")?.name ?? ""];
  return {
    outputs: Object.fromEntries(outputs.flatMap(({ name, role }) => (raw[name] ? [[name, { ...raw[name], role }]] : []))),
    relevance,
    rows,
    columns: rows > 0 ? Math.round(relevance.length / rows) : 0,
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

/** Run the golden vectors through the same steps as any image. */
async function selfTest(request: SelfTestRequest): Promise<Responses["selfTest"]> {
  checkCanvasReadback();
  const cases: CaseReport[] = [];
  for (const golden of parseGolden(request.json, request.binary, request.url)) {
    const { data, height, width } = golden.image;
    const rgba = new Uint8ClampedArray(4 * height * width).fill(255);
    for (let from = 0, to = 0; from < data.length; to++) {
      for (let channel = 0; channel < 3; channel++) rgba[to++] = data[from++] ?? 0;
    }
    const image = new ImageData(rgba, width, height);
    const output = await run({ op: "run", image, query: golden.query, height, width });
    cases.push(evaluateCase(golden, output, request.limit, output.inference));
  }
  return { pass: cases.every((c) => c.pass), cases };
}

function inputOfKind(kind: string): Tensor {
  const found = inputs.find((i) => i.kind === kind);
  if (!found) throw new UsageError(`the model has no input of kind "${kind}"`);
  return found;
}

function post(reply: WorkerReply, transfer: Transferable[] = []): void {
  postMessage(reply, { transfer });
}

function transferList(response: Responses[keyof Responses]): Transferable[] {
  if (response === null || typeof response !== "object") return [];
  const found = new Set<ArrayBuffer>();
  for (const value of Object.values(response)) {
    const view = ArrayBuffer.isView(value) ? value : (value as RawTensor | null)?.data;
    if (ArrayBuffer.isView(view) && view.buffer instanceof ArrayBuffer) found.add(view.buffer);
  }
  return [...found];
}
