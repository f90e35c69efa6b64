import type {
  Adapter,
  Alias,
  AliasTarget,
  ApiKey,
  Certificate,
  Ledger,
  Limits,
  Overview,
  Plan,
  TenantDetail,
  TenantQueue,
  UsageRow,
  Version,
} from "@/api/types";

export const kvLedger: Ledger = {
  name: "kv",
  unit: "bytes",
  capacity: 1_048_576,
  used: 262_144,
  reserved: 65_536,
  in_flight: 0,
  cached: 131_072,
  free: 589_824,
  shared: 4096,
  fragmentation: 512,
  external_fragmentation: 0,
  by_tenant: [
    { tenant: "acme", bytes: 393_216 },
    { tenant: "globex", bytes: 65_536 },
  ],
};

export const arenaLedger: Ledger = {
  name: "arena",
  unit: "bytes",
  capacity: 4096,
  used: 1024,
  reserved: 0,
  in_flight: 512,
  cached: 0,
  free: 2560,
  shared: 0,
  fragmentation: 0,
  external_fragmentation: 256,
  by_tenant: [{ tenant: "acme", bytes: 1536 }],
};

export const hostLedger: Ledger = { ...arenaLedger, name: "host", used: 0, cached: 1024 };

export const swapLedger: Ledger = {
  ...arenaLedger,
  name: "swap",
  capacity: 0,
  used: 0,
  in_flight: 0,
  free: 0,
  external_fragmentation: 0,
  by_tenant: [],
};

export function queue(tenant: string, fields: Partial<TenantQueue> = {}): TenantQueue {
  return { tenant, running: 0, waiting: 0, weight: 1, service: 0, ...fields };
}

/** What the API answers while no engine does. */
export function engineless(state: "starting" | "unavailable"): Overview {
  const nothing = { running: 0, waiting: 0, swapped: 0, seats: 0, max_seats: 0, tokens_per_second: 0, steps_total: 0 };
  return overview({
    ...nothing,
    state,
    prompt_tokens_total: 0,
    generated_tokens_total: 0,
    device: null,
    dtype: null,
    queues: [],
    adapters: [],
    kv: null,
    arena: null,
    host: null,
    swap: null,
    prefix: null,
    residency: null,
    adapter_traffic: null,
    preemptions: null,
    refusals: null,
  });
}

export function overview(engine: Partial<Overview["engine"]> = {}): Overview {
  return {
    engine: {
      state: "ready",
      model: "smollm2-135m-instruct",
      device: "cpu",
      dtype: "bfloat16",
      max_model_len: 2048,
      uptime_s: 3725,
      running: 7,
      waiting: 2,
      swapped: 1,
      seats: 24,
      max_seats: 32,
      tokens_per_second: 123.4,
      prompt_tokens_total: 1200,
      generated_tokens_total: 34_567,
      steps_total: 890,
      kv: kvLedger,
      arena: arenaLedger,
      host: hostLedger,
      swap: swapLedger,
      queues: [queue("acme", { running: 5, waiting: 2, weight: 3 }), queue("globex", { running: 2 })],
      prefix: {
        queried_tokens: 2000,
        hit_tokens: 500,
        hit_rate: 0.25,
        recomputed_hit_tokens: 0,
        by_tenant: [
          { tenant: "acme", queried_tokens: 1000, hit_tokens: 500 },
          { tenant: "globex", queried_tokens: 1000, hit_tokens: 0 },
        ],
        by_adapter: [],
        misses: { cold: 6, evicted: 2 },
      },
      residency: { cold: 11, loading: 1, host: 4, resident: 3, draining: 2 },
      adapters: [
        {
          tenant: "acme",
          adapter: "pirate:2",
          digest: "ab".repeat(32),
          state: "resident",
          bytes: 1024,
          requests: 3,
          waiting: 1,
          heat: 4.5,
        },
      ],
      adapter_traffic: {
        loads: { disk: 9, host: 4 },
        evictions: { room: 5, barrier: 1, retired: 0 },
        stall_s: 2.25,
        longest_wait_s: 0.034,
      },
      preemptions: {
        swap: 3,
        recompute: 8,
        wait: 1,
        recomputed_tokens: 1234,
        swap_out_bytes: 2048,
        swap_in_bytes: 1024,
      },
      refusals: { by_reason: { tenant_queue: 12, ttft_tenant: 1, ttft_adapter: 2, ttft_kv: 7 }, expired: 3 },
      ...engine,
    },
    tenants: 2,
    adapters_ready: 1,
    jobs_open: 0,
    gateways: 2,
    rates_degraded: false,
    books: { checked_at: 1_700_000_000, mismatches: 0 },
  };
}

export function tenant(slug: string, fields: Partial<TenantDetail> = {}): TenantDetail {
  return {
    id: slug,
    slug,
    display_name: slug,
    status: "active",
    weight: 1,
    plan: "standard",
    keys_make_keys: false,
    created_at: 1_700_000_000,
    suspended_at: null,
    adapters: 1,
    keys: 1,
    memory: { adapter_bytes: 4096, kv_bytes: 1_572_864 },
    ...fields,
  };
}

/** Routes that every page of a tenant asks for. */
export function tenantRoutes(slug: string, fields: Partial<TenantDetail> = {}): Record<string, { body: unknown }> {
  return {
    "GET /admin/v1/tenants": { body: list(tenant(slug, fields)) },
    [`GET /admin/v1/tenants/${slug}`]: { body: tenant(slug, fields) },
    [`GET /admin/v1/tenants/${slug}/limits`]: { body: { limits: limits() } },
    [`GET /admin/v1/tenants/${slug}/usage`]: { body: list() },
    "GET /admin/v1/usage": { body: list() },
    "GET /admin/v1/plans": { body: list(plan("standard"), plan("small")) },
  };
}

const FIGURES: Limits = {
  rpm: { value: 6000, burst: 1000, origin: "plan", own: null, plan: { value: 6000, burst: 1000 } },
  monthly_tokens: { value: 1e12, burst: null, origin: "plan", own: null, plan: { value: 1e12, burst: null } },
  adapter_bytes: { value: 50 * 2 ** 30, burst: null, origin: "plan", own: null, plan: { value: 50 * 2 ** 30, burst: null } },
};

export function limits(changed: Limits = {}): Limits {
  return { ...FIGURES, ...changed };
}

export function plan(id: string): Plan {
  const figures = Object.entries(FIGURES).map(([name, { plan }]) => [name, plan] as const);
  return { id, display_name: id, created_at: 1_700_000_000, tenants: 1, limits: Object.fromEntries(figures) };
}

export const costs: UsageRow["costs"] = {
  prefill_flops: 3e12,
  decode_flops: 1e12,
  prefill_read_bytes: 2 ** 30,
  decode_read_bytes: 3 * 2 ** 30,
  write_bytes: 2 ** 20,
  kv_byte_seconds: 1800 * 2 ** 30,
  adapter_byte_seconds: 3600 * 2 ** 20,
  load_bytes: 2 ** 21,
  wasted_flops: 2e11,
  swap_bytes: 0,
};

export function usage(bucket_start: number, fields: Partial<UsageRow> = {}): UsageRow {
  return {
    bucket_start,
    requests: 2,
    errors: 0,
    prompt_tokens: 100,
    cached_tokens: 20,
    completion_tokens: 50,
    costs,
    requests_without_cost: 0,
    ...fields,
  };
}

export function version(adapter: string, number: number, fields: Partial<Version> = {}): Version {
  return {
    id: `${adapter}-${number}`,
    adapter,
    number,
    state: "ready",
    description: null,
    digest: "cd".repeat(32),
    rank: 8,
    bytes: 2_461_832,
    serving_bytes: 2_457_600,
    target_modules: ["self_attn.q_proj", "self_attn.v_proj"],
    config: { r: 8, lora_alpha: 16, target_modules: ["q_proj", "v_proj"], use_dora: false, rank_pattern: {} },
    reject_code: null,
    reject_detail: null,
    warnings: [],
    certificate: null,
    created_by: "key bot",
    created_at: 1_700_000_000,
    ready_at: 1_700_000_001,
    retired_at: null,
    retired_by: null,
    retire_reason: null,
    purge_after: null,
    ...fields,
  };
}

export const certificate: Certificate = {
  config_digest: "a1".repeat(32),
  tensor_digest: "cd".repeat(32),
  base_model: "smollm2-135m-instruct",
  base_model_digest: "b2".repeat(32),
  modules: { "self_attn.v_proj": 30, "self_attn.q_proj": 28 },
  ranks: { "16": 2, "8": 56 },
  serving_bytes: 2_457_600,
  effect: 0.42,
  oracle: "peft",
  max_logit_difference: 0.0000123,
  logit_scale: 24.6,
  greedy_agreement: 1,
  neighbour_max_logit_difference: 0.000002,
  neighbours_unchanged: true,
  served_alike: true,
  n_probes: 6,
  n_tokens: 192,
  warnings: [],
  validator: "lorikeet 0.1.0",
  made_at: 1_700_000_001,
};

/** An alias of shares: `alias("live", { 2: 90, 3: 10 })`. */
export function alias(name: string, shares: Record<number, number>, fields: Partial<Alias> = {}): Alias {
  const targets = Object.entries(shares).map(([version, weight]): AliasTarget => ({ version: Number(version), weight }));
  return {
    alias: name,
    revision: 1,
    targets,
    sticky: "none",
    guard: null,
    updated_by: "owner",
    updated_at: 1_700_000_002,
    ...fields,
  };
}

export function adapter(name: string, versions: Version[], aliases: Alias[] = []): Adapter {
  return { id: name, name, description: "", created_at: 1_700_000_000, aliases, versions };
}

export function apiKey(name: string, fields: Partial<ApiKey> = {}): ApiKey {
  return {
    id: `key-${name}`,
    name,
    hint: "Q2x9",
    public_id: "7f3a00bc12De",
    status: "active",
    scopes: ["inference", "models:read"],
    allowed_adapters: null,
    ip_allowlist: null,
    subject_id: `key-${name}`,
    rotated_from: null,
    replaced_at: null,
    created_by: "administrator",
    created_at: 1_700_000_000,
    expires_at: null,
    revoked_at: null,
    revoke_reason: null,
    last_used_at: null,
    last_used_network: null,
    ...fields,
  };
}

export function list<Item>(...data: Item[]): { object: "list"; data: Item[] } {
  return { object: "list", data };
}

/** The answer of a list with pages. */
export function page<Item>(data: Item[], next: string | null = null) {
  return { body: { object: "list", data, has_more: next !== null, next } };
}
