import type { Adapter, ApiKey, Ledger, Overview, Tenant, Version } from "@/api/types";

export const kvLedger: Ledger = {
  name: "kv",
  unit: "bytes",
  capacity: 1_048_576,
  used: 262_144,
  reserved: 65_536,
  in_flight: 0,
  cached: 131_072,
  free: 589_824,
  fragmentation: 512,
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
  fragmentation: 0,
  by_tenant: [{ tenant: "acme", bytes: 1536 }],
};

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
      tokens_per_second: 123.4,
      prompt_tokens_total: 1200,
      generated_tokens_total: 34_567,
      steps_total: 890,
      kv: kvLedger,
      arena: arenaLedger,
      adapters: [
        { tenant: "acme", adapter: "pirate:2", digest: "ab".repeat(32), state: "used", bytes: 1024, requests: 3 },
      ],
      ...engine,
    },
    tenants: 2,
    adapters_ready: 1,
    jobs_open: 0,
  };
}

export function tenant(slug: string): Tenant {
  return { id: slug, slug, display_name: slug, status: "active", created_at: 1_700_000_000, adapters: 1, keys: 1 };
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
    target_modules: ["q_proj", "v_proj"],
    reject_code: null,
    reject_detail: null,
    warnings: [],
    created_at: 1_700_000_000,
    ready_at: 1_700_000_001,
    ...fields,
  };
}

export function adapter(name: string, versions: Version[], aliases: Adapter["aliases"] = {}): Adapter {
  return { id: name, name, description: "", created_at: 1_700_000_000, aliases, versions };
}

export function apiKey(name: string, fields: Partial<ApiKey> = {}): ApiKey {
  return {
    id: `key-${name}`,
    name,
    hint: "Q2x9",
    public_id: "7f3a00bc12De",
    status: "active",
    created_at: 1_700_000_000,
    expires_at: null,
    revoked_at: null,
    last_used_at: null,
    ...fields,
  };
}

export function list<Item>(...data: Item[]): { object: "list"; data: Item[] } {
  return { object: "list", data };
}
