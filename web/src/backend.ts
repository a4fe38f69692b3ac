/**
 * Backend: one runtime from its start to its end, and what it is asked: in a worker, or in Node in the page's place.
 *
 * Requests are handled in order, one after the other, except that the model is fetched while the runtime starts.
 */
import { type OnBytes, fetchModel, fetchResponse } from "./download.js";
import { environment } from "./environment.js";
import { BackendError, UsageError } from "./errors.js";
import { type CaseReport, type GoldenCase, type OutputLimits, evaluateCase, parseGolden, widest } from "./golden.js";
import type { Tensor } from "./manifest.js";
import { type Pixels, type TransferableImage, checkCanvasReadback, checkTensor, isTensor, normalise, toImageData, toPixels } from "./preprocessing.js";
import type {
  ModelOutput,
  PreloadRequest,
  Request,
  Responses,
  RunRequest,
  SelfTestRequest,
  StartRequest,
  Started,
} from "./protocol.js";
import type { Session } from "./session.js";
import type { RawTensor } from "./tensor.js";

const HEARTBEAT = 250; // ms between messages that restart the request's timer
const PROGRESS_INTERVAL = 100; // ms

/** What a backend reports beside its responses. */
export interface Reports {
  readonly onprogress: (id: number, ...bytes: Parameters<OnBytes>) => void;
  readonly onlost: (reason: string) => void;
}

/** Starts the runtime. */
export type Start = (
  request: StartRequest,
  events: { readonly onarrived: () => void; readonly onlost: (reason: string) => void; readonly ondata: OnBytes },
) => Promise<[Session, Started]>;

export class Backend {
  private session: Session | undefined;
  private inputs: readonly Tensor[] = [];
  private outputs: readonly Tensor[] = [];
  private lastRequest: Promise<unknown> = Promise.resolve();
  private model: Uint8Array<ArrayBuffer> | undefined;

  constructor(
    private readonly start: Start,
    private readonly reports: Reports,
  ) {}

  /** Handle a request after all earlier ones. */
  request(request: Request, id: number): Promise<Responses[keyof Responses]> {
    if (request.op === "fetch") return this.handle(request, id);
    const response = this.lastRequest.then(() => this.handle(request, id));
    this.lastRequest = response.catch(() => undefined);
    return response;
  }

  /** Release the model's memory; a worker is terminated instead. */
  async close(): Promise<void> {
    await this.lastRequest;
    await this.session?.release();
  }

  private async handle(request: Request, id: number): Promise<Responses[keyof Responses]> {
    switch (request.op) {
      case "start": {
        // The time limit does not include the download of the runtime's files.
        const heartbeat = setInterval(() => { this.reports.onprogress(id, 0, false); }, HEARTBEAT);
        const onarrived = (): void => { clearInterval(heartbeat); };
        const ondata = this.progressReporter(id, Infinity);
        const events = { onarrived, onlost: this.reports.onlost, ondata };
        const [created, started] = await this.start(request, events).finally(onarrived);
        this.session = created;
        return started;
      }
      case "fetch":
        [this.model] = await fetchModel(request.model, { onprogress: this.progressReporter(id, request.model.file.size) });
        return null;
      case "preload":
        await this.preload(request, id);
        return null;
      case "open": {
        this.inputs = request.inputs;
        this.outputs = request.outputs;
        const opened = this.model;
        this.model = undefined;
        if (!opened) throw new BackendError("the model has not been fetched");
        await this.startedSession().open(opened, request.inputs);
        return null;
      }
      case "run":
        return this.run(request);
      case "feed":
        return this.startedSession().run(request.inputs);
      case "selfTest":
        return this.selfTest(request);
    }
  }

  /** Fetch and store a model, and load the other files into the HTTP cache. */
  private async preload({ model, otherUrls }: PreloadRequest, id: number): Promise<void> {
    const storedModel = fetchModel(model, { onprogress: this.progressReporter(id, model.file.size) }).then(([, stored]) => stored);
    const rest = otherUrls.map(async (url) => (await fetchResponse(url, undefined, "default")).arrayBuffer());
    await Promise.all([storedModel, ...rest]);
  }

  /** Reports the progress of a download: at limited intervals, and its end. */
  private progressReporter(id: number, size: number): OnBytes {
    let lastReport = 0;
    return (loaded, fromCache, sent) => {
      const now = performance.now();
      if (loaded < size && now - lastReport < PROGRESS_INTERVAL) return;
      lastReport = now;
      this.reports.onprogress(id, loaded, fromCache, sent);
    };
  }

  private startedSession(): Session {
    if (!this.session) throw new BackendError("the runtime has not started");
    return this.session;
  }

  /** Run one batch; its answers are in the order of its questions. */
  private async run({ questions, height, width }: RunRequest): Promise<ModelOutput[]> {
    const count = questions.length;
    const before = performance.now();
    const images: RawTensor[] = [];
    for (const { image } of questions) images.push(await this.imageTensor(image, height, width));
    const preprocess = (performance.now() - before) / count;
    const feed: Record<string, RawTensor> = { [this.inputOfKind("image").name]: stacked(images) };
    const input = this.inputs.find((i) => i.kind === "query");
    if (input) feed[input.name] = stacked(questions.map(({ query }) => queryTensor(query)));
    const started = performance.now();
    const raw = await this.startedSession().run(feed);
    const inference = (performance.now() - started) / count;
    const [, , rows = 0, columns = 0] = images[0]?.shape ?? [];
    return questions.map((_, index) => ({ ...this.toModelOutput(part(raw, index, count), rows, columns), preprocess, inference }));
  }

  private async imageTensor(source: TransferableImage, height: number, width: number): Promise<RawTensor> {
    const { low, high, fit } = this.inputOfKind("image");
    if (isTensor(source)) {
      checkTensor(source);
      return { dtype: "float32", shape: [1, 3, source.height, source.width], data: source.data };
    }
    const data = normalise(await toPixels(source, height, width, fit), low, high);
    return { dtype: "float32", shape: [1, 3, height, width], data };
  }

  private toModelOutput(raw: Readonly<Record<string, RawTensor>>, height: number, width: number): Omit<ModelOutput, "preprocess" | "inference"> {
    const [scores, ...others] = this.outputs.filter((o) => o.role === "scores").map((o) => o.name);
    const relevance = (raw[scores ?? ""]?.data ?? new Float32Array()) as Float32Array;
    // Patches are square, so the grid has the proportions of the image.
    const rows = Math.round(Math.sqrt((relevance.length * height) / width));
    const features = raw[this.outputs.find((o) => o.role === "features")?.name ?? ""];
    return {
      outputs: Object.fromEntries(this.outputs.flatMap(({ name, role }) => (raw[name] ? [[name, { ...raw[name], role }]] : []))),
      relevance,
      rows,
      columns: rows > 0 ? Math.round(relevance.length / rows) : 0,
      budgets: this.integers(raw, "counts"),
      indices: this.integers(raw, "ranking"),
      tokens: features ? { data: features.data as Float32Array, shape: features.shape.slice(1) } : null,
      parts: Object.fromEntries(others.map((name) => [name, raw[name]?.data as Float32Array])),
    };
  }

  private integers(raw: Readonly<Record<string, RawTensor>>, role: string): Int32Array {
    const found = raw[this.outputs.find((o) => o.role === role)?.name ?? ""];
    return found ? Int32Array.from(found.data as unknown as ArrayLike<number | bigint>, Number) : new Int32Array();
  }

  /** Run the golden vectors through the same steps as any image. */
  private async selfTest(request: SelfTestRequest): Promise<Responses["selfTest"]> {
    if (environment().draws) checkCanvasReadback();
    const cases: CaseReport[] = [];
    const golden = parseGolden(request.json, request.binary, request.url);
    const allowed = widest(request.allowed.map((name) => golden.limits[name] ?? {}));
    for (const row of golden.cases) cases.push(await this.goldenCase(row, allowed));
    return { pass: cases.every((c) => c.pass), cases };
  }

  /** Run one case, its picture through the same steps as any image. */
  private async goldenCase(row: GoldenCase, allowed: OutputLimits): Promise<CaseReport> {
    const feed: Record<string, RawTensor> = { ...row.inputs };
    if (row.image) {
      const { height, width } = row.image;
      feed[this.inputOfKind("image").name] = await this.imageTensor(drawn(row.image), height, width);
    }
    const started = performance.now();
    const outputs = await this.startedSession().run(feed);
    return evaluateCase(row, outputs, allowed, performance.now() - started);
  }

  private inputOfKind(kind: string): Tensor {
    const found = this.inputs.find((i) => i.kind === kind);
    if (!found) throw new UsageError(`the model has no input of kind "${kind}"`);
    return found;
  }
}

/** A picture as the browser draws it; Node and Deno take pixels as they are. */
function drawn(picture: Pixels): TransferableImage {
  return environment().draws ? toImageData(picture) : picture;
}

function queryTensor(query: Float32Array<ArrayBuffer> | null): RawTensor {
  if (!query) throw new UsageError("the model needs a query: pass words or a vector");
  return { dtype: "float32", shape: [1, query.length], data: query };
}

/** Tensors of one shape [1, ...], below each other: [n, ...]. */
function stacked(tensors: readonly RawTensor[]): RawTensor {
  const [first] = tensors;
  if (!first || tensors.length === 1) return first ?? queryTensor(null);
  const size = first.data.byteLength / Float32Array.BYTES_PER_ELEMENT;
  const data = new Float32Array(size * tensors.length);
  tensors.forEach((tensor, index) => { data.set(tensor.data as Float32Array, index * size); });
  return { dtype: first.dtype, shape: [tensors.length, ...first.shape.slice(1)], data };
}

/** What a batch of so many answers one of its questions, in memory of its own. */
function part(raw: Readonly<Record<string, RawTensor>>, index: number, count: number): Readonly<Record<string, RawTensor>> {
  if (count === 1) return raw;
  return Object.fromEntries(Object.entries(raw).map(([name, { dtype, shape, data }]) => {
    const values = data as Float32Array<ArrayBuffer>;
    const size = values.length / count;
    return [name, { dtype, shape: [1, ...shape.slice(1)], data: values.slice(index * size, (index + 1) * size) }];
  }));
}
