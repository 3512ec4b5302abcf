/** Language models on the visitor's own GPU. */

export type ErrorCode =
  | 'usage' | 'file' | 'format' | 'unsupported' | 'memory' | 'device' | 'internal' | 'network' | 'quota' | 'cancelled';

/** Every error of this library; the message is a sentence for a person. */
export class DopplerError extends Error {
  readonly code: ErrorCode;
}

export interface Progress {
  /** check: asking the server; wait: another tab downloads this model; upload: to the GPU. */
  phase: 'check' | 'wait' | 'download' | 'upload' | 'ready';
  /** Bytes so far, and in all. */
  loaded?: number;
  total?: number;
  /** Bytes per second over the last seconds. */
  rate?: number;
  secondsLeft?: number | null;
}

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  /** Cancels the load; what has arrived is kept, and the next load goes on from there. */
  signal?: AbortSignal;
  /** Tokens to make room for; the model's own, at most 4096, if left out. */
  context?: number;
  /** How much is said while it loads: silent (the default), info, or verbose, where every shard came from. */
  log?: 'silent' | 'info' | 'verbose';
  /** Hears what is said; the console if left out. */
  onLog?: (line: {level: 'info' | 'verbose'; text: string}) => void;
  /** Seconds that the tokenizer's regular expressions may take over one text; 10 if left out. */
  textSeconds?: number;
}

export interface Sampling {
  /** 0 (the default) always takes the likeliest token. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repeatPenalty?: number;
  seed?: number;
}

export interface GenerateOptions extends Sampling {
  maxTokens?: number;
  /** The answer ends before any of these appears. */
  stop?: string[];
  /** Tokens that the GPU chooses by itself before we look: 1 to 64; by its pace if left out. */
  decodeBatch?: number;
  /** Look into the steps as they run, of all layers or of these; onTrace hears of each, the console where it is left out. */
  debug?: boolean;
  debugLayers?: number[];
  trace?: Trace;
  onTrace?: (trace: StepTrace) => void;
  /** Ends the answer early; what there is of it is the result, with the stop reason 'interrupted'. */
  signal?: AbortSignal;
}

/** Which subjects: all, one or several of embed, attn, ffn and logits. */
export type Trace = boolean | string | ('embed' | 'attn' | 'ffn' | 'logits')[];

/** Of all values of one row. */
export interface RowStatistics {
  min: number;
  max: number;
  largest: number;
  mean: number;
  rms: number;
  values: number;
  notFinite: number;
}

export interface StepTrace extends RowStatistics {
  step: string;
  subject: 'embed' | 'attn' | 'ffn' | 'logits';
  layer: number;
  /** LAYER_3, FINAL_HIDDEN, TOP5, or nothing. */
  tag: string;
  position: number;
  top?: {id: number; logit: number}[];
  /** The same as `doppler run --trace` prints it. */
  line: string;
}

export interface Probe {
  id?: string;
  /** layer3.attn_norm; or attn_norm, of all layers or of `layers`. */
  stage: string;
  layers?: number[];
  /** Positions; negative count from the end. The last one if left out. */
  tokens?: number[];
  dims?: number[];
}

export interface DebugOptions {
  /** "The color of the sky is", or what `compare` was recorded of, if left out. */
  prompt?: string;
  ids?: number[];
  layers?: number[];
  probes?: Probe[];
  trace?: Trace;
  onTrace?: (trace: StepTrace) => void;
  /** stages.safetensors of `doppler debug --dump`, a file of tools/dump_reference.py, or a bundle: its address or its bytes. */
  compare?: string | URL | Blob | ArrayBuffer | Uint8Array;
}

export interface StageComparison {
  name: string;
  relError: number;
  cosine: number;
  elementError: number;
  worst: {position: number; column: number; got: number; expected: number} | null;
  ok: boolean;
  note: string;
}

export interface DebugResult {
  ids: number[];
  /** SHA-256 of the manifest. */
  artefact: string;
  /** Of the last position of every step. */
  stages: (RowStatistics & {name: string; layer: number; position: number; rows: number; width: number; tag: string})[];
  probes: {id: string; stage: string; position: number; dim: number; value: number}[];
  top: {id: number; piece: string; logit: number; probability: number}[];
  /** Up to the first stage out of bounds. */
  comparison: {stages: StageComparison[]; firstBad: string | null; kernel: string | null; suspects: string[]; notCompared: string[]} | null;
  /** One file with all of it, for `doppler debug MODEL --compare FILE`. */
  bundle: Blob;
}

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool' | (string & {});
  content: string;
}

export interface GenerationResult {
  text: string;
  ids: number[];
  promptIds: number[];
  stopReason: 'end' | 'stop' | 'max_tokens' | 'context' | 'interrupted';
  timing: {
    prefillMs: number; firstTokenMs: number; decodeMs: number;
    prefilled: number; decoded: number; prefillTokS: number; decodeTokS: number;
  };
}

/** An answer as it comes: iterate over its pieces, or await the whole. */
export interface Generation extends AsyncIterable<string> {
  readonly result: Promise<GenerationResult>;
}

export interface ModelInfo {
  id: string;
  quantization: string;
  layers: number;
  vocab: number;
  context: number;
  maxContext: number;
  artefactBytes: number;
  kvBytes: number;
  hasTokenizer: boolean;
  hasChat: boolean;
  recommended: Required<Omit<Sampling, 'seed'>>;
  adapter: {name: string; vendor: string; architecture: string; software: boolean; f16: boolean; subgroups: boolean};
  /** The server could not be asked, and the stored copy was taken. */
  offline: boolean;
  fetchMs: number;
  loadMs: number;
}

export interface StepStatistics {
  step: string;
  rms: number;
  mean: number;
  largest: number;
  values: number;
  notFinite: number;
}

export interface Inspection {
  steps: StepStatistics[];
  next: {id: number; piece: string; probability: number}[];
  tokens: number;
}

export interface CompletionRequest {
  messages: ChatMessage[];
  model?: string;
  stream?: boolean;
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  max_completion_tokens?: number;
  stop?: string | string[];
  seed?: number;
  stream_options?: {include_usage?: boolean};
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

export interface Completion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  choices: {index: number; message: {role: 'assistant'; content: string}; finish_reason: 'stop' | 'length'}[];
  usage: Usage;
}

export interface CompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: {index: number; delta: {role?: 'assistant'; content?: string}; finish_reason: 'stop' | 'length' | null}[];
  usage?: Usage;
}

export interface Completions {
  create(request: CompletionRequest & {stream: true}, options?: {signal?: AbortSignal}): Promise<AsyncIterable<CompletionChunk>>;
  create(request: CompletionRequest & {stream?: false}, options?: {signal?: AbortSignal}): Promise<Completion>;
}

export interface Model {
  readonly info: ModelInfo;
  /** Resolves with the error if the GPU is lost or the engine dies. */
  readonly lost: Promise<DopplerError>;
  /** Answers a conversation; chat.completions.create does so in OpenAI's shape. */
  readonly chat: {
    (messages: ChatMessage[], options?: GenerateOptions): Generation;
    readonly completions: Completions;
  };
  /** Goes on from a plain text, or from token ids. */
  generate(prompt: string | {ids: number[]}, options?: GenerateOptions): Generation;
  encode(input: string | ChatMessage[]): Promise<number[]>;
  decode(ids: number[]): Promise<string>;
  /** What every step of the model computes for a prompt, in numbers. */
  inspect(input: string | ChatMessage[]): Promise<Inspection>;
  /** Looks into every step of a prompt. */
  debug(options?: DebugOptions): Promise<DebugResult>;
  /** Whether the engine goes on after an error; if not, reload() or load anew. */
  usable(): Promise<boolean>;
  stats(): Promise<{usable: boolean; heapBytes: number; bufferBytes: number; submits: number; dispatches: number; recordMs: number}>;
  /** Loads the model again after it was lost. */
  reload(options?: {onProgress?: (progress: Progress) => void}): Promise<void>;
  unload(): Promise<void>;
}

export interface StoredModel {
  url: string;
  name: string;
  folder: string;
  bytes: number;
  complete: boolean;
}

export const Doppler: {
  /** Downloads (or finds) the model at `url`, a folder with manifest.json, and puts it on the GPU. */
  load(url: string | URL, options?: LoadOptions): Promise<Model>;
  /** The models kept in this browser. */
  stored(): Promise<StoredModel[]>;
  /** Deletes one of them, by its URL or its folder. */
  remove(urlOrFolder: string): Promise<void>;
  /** What this browser lacks to run models; null if nothing. */
  missing(): Promise<DopplerError | null>;
};
