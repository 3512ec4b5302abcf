import type {LoadOptions, Model} from './index.js';

export * from './index.js';

export const Doppler: {
  /**
   * Loads the model in a folder, on the GPU that the package `webgpu` finds. `dawn` are Dawn's own
   * flags: without them, those that allow subgroup matrices, and f16 on NVIDIA.
   */
  load(folder: string | URL, options?: LoadOptions & {dawn?: string[]}): Promise<Model>;
};
