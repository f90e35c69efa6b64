/** The four pools in operators' words. */
export const POOLS = {
  kv: {
    title: "KV pool",
    help: "Keys and values of the tokens that requests have read and written so far; the longer they get, the more they need.",
    absent: "The engine has no KV pool.",
    testId: "kv-ledger",
  },
  arena: {
    title: "Adapter arena",
    help: "Adapters where the model reads them. A request runs only while its adapter lies here.",
    absent: "Without an arena no adapter can be served.",
    testId: "arena-ledger",
  },
  host: {
    title: "Host adapter cache",
    help: "Adapters kept in host memory, so that bringing one into the arena reads no disk.",
    absent: "Every load of an adapter reads the disk. LORIKEET_ENGINE__HOST_ADAPTER_CACHE_BYTES sets some aside.",
    testId: "host-ledger",
  },
  swap: {
    title: "Swap pool",
    help: "Host memory for the KV blocks of preempted requests.",
    absent: "Preempted requests are computed again. LORIKEET_ENGINE__SWAP_SPACE sets some aside.",
    testId: "swap-ledger",
  },
} as const;
