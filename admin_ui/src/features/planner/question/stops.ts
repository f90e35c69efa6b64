/** What sliders stop at: steps of a half and a third, so that a short way covers five orders of magnitude. */
export const STOPS: Readonly<Record<string, readonly number[]>> = {
  prompt_tokens: [16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 32_768, 65_536, 131_072],
  output_tokens: [16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16_384],
  concurrency: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024],
  requests_per_s: [0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100],
  "adapters.count": [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000],
  "adapters.rank": [1, 2, 4, 8, 16, 32, 64, 128, 256],
};

/** Where the slider stands for a value: at the nearest stop, by their ratio. */
export function nearestStop(stops: readonly number[], value: number): number {
  const distance = (stop: number) => Math.abs(Math.log(stop / value));
  return stops.reduce((best, stop, at) => (distance(stop) < distance(stops[best] ?? stop) ? at : best), 0);
}
