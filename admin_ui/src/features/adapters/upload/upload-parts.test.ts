import { createHash } from "node:crypto";

import { describe, expect, it } from "vitest";

import { ApiError } from "@/api/errors";

import { droppedFiles } from "./dropped";
import { fileSet, nameProblem } from "./file-set";
import { sha256Of } from "./hashing";
import { advance, bytesPerSecond, EMPTY_METER, secondsLeft } from "./meter";
import { amounts, NOTHING, step, type Event } from "./progress";
import { matching } from "./transfer";

const named = (...names: string[]) => names.map((name) => ({ name }));

describe("the files of an adapter", () => {
  it("are the configuration and the weights, and nothing else is sent", () => {
    const { sent, notSent, problem } = fileSet(
      named("training.json", "adapter_model.safetensors", "adapter_config.json", "optimizer.pt", "adapter_model.bin"),
    );
    expect(sent.map(({ name }) => name)).toEqual(["adapter_config.json", "adapter_model.safetensors"]);
    expect(notSent.map(({ name }) => name)).toEqual(["adapter_model.bin", "optimizer.pt", "training.json"]);
    expect(problem).toBeNull();
  });

  it("are all shards with their index", () => {
    const shard = (number: number) => `adapter_model-0000${number}-of-00002.safetensors`;
    const index = "adapter_model.safetensors.index.json";
    expect(fileSet(named("adapter_config.json", index, shard(1), shard(2))).problem).toBeNull();
    expect(fileSet(named("adapter_config.json", index, shard(1))).problem).toBe(`${shard(2)} is missing.`);
    expect(fileSet(named("adapter_config.json", shard(1), shard(2))).problem).toContain(`${index} is missing`);
    expect(fileSet(named("adapter_config.json", index)).problem).toBe("Every shard is missing.");
    expect(fileSet(named("adapter_config.json", index, shard(1), shard(2), "adapter_model.safetensors")).problem).toContain("twice");
  });

  it("lack something by name", () => {
    expect(fileSet(named("adapter_model.safetensors")).problem).toContain("adapter_config.json is missing");
    expect(fileSet(named("adapter_config.json")).problem).toContain("adapter_model.safetensors is missing");
  });

  it("replace earlier ones of the same name", () => {
    const files = [
      { name: "adapter_config.json", at: 1 },
      { name: "adapter_config.json", at: 2 },
    ];
    expect(fileSet(files).sent).toEqual([{ name: "adapter_config.json", at: 2 }]);
  });

  it("go under a name that the server takes", () => {
    expect(["a", "support-bot", "a.b_c-9"].map(nameProblem)).toEqual([null, null, null]);
    expect(["", "-a", "a-", "a..b", "Ab", "a/b", "a".repeat(65)].map((name) => nameProblem(name) === null)).not.toContain(true);
  });
});

describe("what is dropped", () => {
  const entryOf = (file: File) => ({ isFile: true, isDirectory: false, file: (resolve: (file: File) => void) => { resolve(file); } });
  /** A folder that tells its entries in parts, as browsers do beyond a hundred. */
  const folderOf = (...parts: object[][]) => ({
    isFile: false,
    isDirectory: true,
    createReader: () => ({
      readEntries: (resolve: (entries: object[]) => void) => {
        resolve(parts.shift() ?? []);
      },
    }),
  });
  const transferOf = (files: File[], entries: object[]) =>
    ({ files, items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })) }) as unknown as DataTransfer;
  const [a, b, c] = ["a", "b", "c"].map((name) => new File([name], name)) as [File, File, File];

  it("are files as they come", async () => {
    expect(await droppedFiles(transferOf([a, b], [entryOf(a), entryOf(b)]))).toEqual([a, b]);
  });

  it("are the files that lie directly in a folder, however many parts it tells them in", async () => {
    const folder = folderOf([entryOf(a), folderOf([entryOf(c)])], [entryOf(b)]);
    expect(await droppedFiles(transferOf([new File([], "folder")], [folder]))).toEqual([a, b]);
  });
});

describe("hashing in the browser", () => {
  it("gives the digest of the whole file, whatever its pieces", async () => {
    const bytes = new Uint8Array(5_000_001).map((_, at) => at % 251);
    const seen: number[] = [];
    const digest = await sha256Of(new Blob([bytes]), (n) => seen.push(n), new AbortController().signal);
    expect(digest).toBe(createHash("sha256").update(bytes).digest("hex"));
    expect(seen.at(-1)).toBe(bytes.length);
    expect(seen.length).toBeGreaterThan(1);
  });

  it("stops when it is told to", async () => {
    await expect(sha256Of(new Blob(["abc"]), () => undefined, AbortSignal.abort())).rejects.toThrow();
  });
});

describe("rate and time left", () => {
  it("come from the last seconds, not from the first", () => {
    let meter = EMPTY_METER;
    for (const [at, bytes] of [[0, 0], [1000, 1000], [7000, 2000], [9000, 6000], [11_000, 10_000]] as const) meter = advance(meter, at, bytes);
    expect(bytesPerSecond(meter)).toBe(2000);
    expect(secondsLeft(meter, 4000)).toBe(2);
  });

  it("are unknown at first and while nothing moves", () => {
    expect(bytesPerSecond(advance(EMPTY_METER, 0, 0))).toBeNull();
    expect(secondsLeft(advance(advance(EMPTY_METER, 0, 5), 1000, 5), 10)).toBeNull();
  });

  it("begin anew when bytes have to be sent again", () => {
    const meter = advance(advance(advance(EMPTY_METER, 0, 0), 1000, 5000), 1500, 3000);
    expect(meter.samples).toEqual([{ at: 1500, bytes: 3000 }]);
  });
});

describe("going on with an upload", () => {
  const file = new File(["abcd"], "adapter_config.json");
  const parcel = { slug: "acme", adapter: "pirate", file, sha256: "aa" };
  const open = { id: "u1", adapter: "pirate", filename: file.name, sha256: "aa", length: 4, received: 1, expires_at: 0 };

  it("means the same name, the same length and the same digest", () => {
    expect(matching([open], parcel)).toBe(open);
    const others = [{ sha256: "bb" }, { length: 5 }, { filename: "adapter_model.safetensors" }, { adapter: "haiku" }];
    expect(others.map((other) => matching([{ ...open, ...other }], parcel))).toEqual([undefined, undefined, undefined, undefined]);
  });

  it("takes the one that got farthest", () => {
    expect(matching([open, { ...open, id: "u2", received: 3 }, { ...open, id: "u3" }], parcel)?.id).toBe("u2");
  });
});

describe("the progress of an upload", () => {
  const files = [new File(["ab"], "adapter_config.json"), new File(["abcdefgh"], "adapter_model.safetensors")];
  const run = (...events: Event[]) => [{ kind: "chosen" as const, files }, ...events].reduce(step, NOTHING);
  const sent: Event[] = [
    { kind: "started" },
    { kind: "hashed", name: "adapter_config.json", sha256: "aa" },
    { kind: "sending", name: "adapter_config.json", from: 0 },
    { kind: "complete", name: "adapter_config.json", uploadId: "u1" },
    { kind: "sending", name: "adapter_model.safetensors", from: 3 },
    { kind: "sent", name: "adapter_model.safetensors", bytes: 5, at: 0 },
  ];

  it("counts the bytes of all files, those included that the server had already", () => {
    expect(amounts(run(...sent))).toEqual({ done: 7, whole: 10 });
    expect(run(...sent).files[1]).toMatchObject({ resumedAt: 3, sent: 5 });
  });

  it("keeps digests and complete uploads over a pause and a failure", () => {
    const failure = new ApiError("gone", 0, "unreachable", null);
    for (const end of [{ kind: "paused" }, { kind: "failed", failure }] as Event[]) {
      expect(run(...sent, end, { kind: "started" }).files[0]).toMatchObject({ sha256: "aa", uploadId: "u1" });
    }
  });

  it("forgets uploads that the server doesn't take when it seals", () => {
    const failure = new ApiError("There is no such upload.", 404, "not_found", null);
    expect(run(...sent, { kind: "sealing" }, { kind: "failed", failure }).files[0]).toMatchObject({ uploadId: null, sent: 0 });
    expect(run(...sent, { kind: "failed", failure }).files[0]).toMatchObject({ uploadId: "u1" });
  });
});
