import { screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import type { EngineReport } from "@/api/types";
import { engineReport, engineWithout, performance } from "@/testing/instruments";
import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";

import { writtenValue } from "./knobs";
import { along, attainable, decades, ticks } from "./roofline/roof";

function show(report: EngineReport = engineReport()) {
  stubNetwork({ "GET /admin/v1/engine": { body: report } });
  renderApp("/engine");
}

async function panel(testId: string) {
  return within(await screen.findByTestId(testId));
}

function cells(row: HTMLElement) {
  return within(row).getAllByRole("cell").map(({ textContent }) => textContent);
}

describe("the engine's page", () => {
  it("has a place among the pages", async () => {
    show();
    const link = await screen.findByRole("link", { name: "Engine" });
    expect(link).toHaveAttribute("aria-current", "page");
    expect(screen.getByRole("link", { name: "Planner" })).toHaveAttribute("href", "/planner");
  });

  it("shows a memory table whose rows add up to what is available", async () => {
    show();
    const memory = await panel("memory");
    const rows = Array.from(memory.getByRole("table").querySelectorAll("[data-memory]"), (row) => Number(row.getAttribute("data-bytes")));
    expect(rows.slice(0, -1).reduce((sum, bytes) => sum + bytes, 0)).toBe(rows.at(-1));
    expect(memory.getByRole("img", { name: /weights 14.0 GiB, KV pool 4.00 GiB, headroom 1.00 GiB/ })).toBeVisible();
    expect(memory.queryByRole("alert")).not.toBeInTheDocument();
  });

  it("says so when the memory table does not add up", async () => {
    const report = engineReport();
    show({ ...report, design: report.design && { ...report.design, available_bytes: 5 } });
    expect((await panel("memory")).getByRole("alert")).toHaveTextContent("available are 5");
  });

  it("shows the KV pool in blocks and tokens, and what that means for concurrency", async () => {
    show();
    const pool = await panel("pool");
    expect(pool.getByTestId("pool-blocks")).toHaveTextContent("4,681of 16 tokens, 896 KiB each");
    expect(pool.getByTestId("pool-tokens")).toHaveTextContent("74,896");
    expect(pool.getByTestId("theoretical")).toHaveTextContent("18.3");
    expect(pool.getByTestId("suggested")).toHaveTextContent("11");
    expect(pool.getByTestId("kv-peak")).toHaveTextContent("75.0 %3.00 GiB");
  });

  it("has figures for each kind of step and none for all together", async () => {
    show();
    const rows = (await panel("phases")).getAllByRole("row").slice(1);
    expect(rows.map(({ dataset }) => dataset.phase)).toEqual(["prefill", "decode", "mixed", "copy"]);
    expect(rows.map(cells)[1]).toEqual([
      "Decode",
      "1,800",
      "36.0 s",
      "60.0 %",
      "28,800",
      "12.3 TFLOP/s",
      "7.4 %",
      "823 GB/s",
      "81.6 %",
      "15",
    ]);
    expect(rows.map(cells)[2]?.slice(0, 3)).toEqual(["Mixed", "0", "–"]);
    expect(rows.map(cells)[3]?.slice(0, 5)).toEqual(["Copy", "3", "60 ms", "0.1 %", "–"]);
  });

  it("draws the roofline and says what each kind of step waits for", async () => {
    show();
    const roofline = await panel("roofline");
    expect(roofline.getByRole("img")).toHaveAccessibleName(/ridge at 164 FLOPs a byte; prefill 243 .* 146 TFLOP\/s; decode 15/);
    expect(roofline.getByText(/Prefill waits for arithmetic: 243 FLOPs a byte, 88.4 % of the roof/)).toBeVisible();
    expect(roofline.getByText(/Decode waits for memory: 15 FLOPs a byte, 81.3 % of the roof/)).toBeVisible();
  });

  it("shows times by what requests ran on, and leaves out what none ran on", async () => {
    show();
    const rows = (await panel("latency")).getAllByRole("row").slice(1);
    const names = rows.map(({ dataset }) => dataset.latency);
    expect(names.filter((name) => /ttft|itl/.test(name ?? ""))).toEqual(["ttft-all", "ttft-base", "ttft-adapter", "itl-all", "itl-base"]);
    const itl = rows.find(({ dataset }) => dataset.latency === "itl-all");
    expect(itl && cells(itl)).toEqual(["Next token (ITL)", "all", "40", "29.2 ms", "26.5 ms", "53.0 ms", "106 ms"]);
  });

  it("tells what batching costs prompts, and dashes what nobody measured", async () => {
    show();
    expect(await screen.findByTestId("interference")).toHaveTextContent("3.9 ×");
    expect(screen.getByTestId("computed-again")).toHaveTextContent("6.3 %HFU 32.0 %, of it needed 30.0 %");
    expect(screen.getByTestId("read-per-token")).toHaveTextContent("877 MiB");
  });

  it("lists the settings by their names in the environment and says which were chosen by themselves", async () => {
    show();
    const knobs = await panel("knobs");
    expect(knobs.getByTestId("knob-max_num_seqs")).toHaveTextContent("max_num_seqs16automaticLORIKEET_ENGINE__MAX_NUM_SEQS");
    expect(knobs.getByTestId("knob-kv_cache_bytes")).toHaveTextContent("4.00 GiBas set");
    expect(knobs.getByTestId("knob-enable_chunked_prefill")).not.toHaveTextContent(/automatic|as set/);
    expect(knobs.getByRole("button", { name: "Copy LORIKEET_ENGINE__MAX_NUM_SEQS" })).toBeVisible();
  });

  it("draws the last five minutes", async () => {
    show();
    expect(await screen.findByRole("img", { name: "MBU, last five minutes: now 60.0 %, peak 60.0 %" })).toBeVisible();
    expect(screen.getByTestId("timeline-waiting")).toHaveTextContent("Waiting10peak 10");
  });

  it.each([
    ["starting", "The engine is starting"],
    ["unavailable", "The engine does not answer"],
  ] as const)("says what it knows while the engine is %s", async (state, title) => {
    show(engineWithout(state));
    expect(await screen.findByText(title)).toBeVisible();
    expect(screen.getByTestId("engine-state")).toHaveAttribute("data-state", state);
    expect(screen.queryByTestId("memory")).not.toBeInTheDocument();
  });

  it("shows the design before there are figures", async () => {
    show(engineReport({ performance: null }));
    expect(await screen.findByText("Too little seen yet")).toBeVisible();
    expect(screen.getByTestId("memory")).toBeVisible();
    expect(screen.getByTestId("kv-peak")).toHaveTextContent("–");
  });

  it("has an interference of nothing when no prompt was measured", async () => {
    show(engineReport({ performance: { ...performance, interference: null, phases: [] } }));
    expect(await screen.findByTestId("interference")).toHaveTextContent("–no prompt was measured");
    expect(screen.getByText("No step ran in this window.")).toBeVisible();
  });
});

describe("the roof", () => {
  const roof = { peakFlops: 165.2e12, peakBandwidth: 1008e9, ridge: 163.9 };

  it("rises with the bandwidth up to the ridge and is flat beyond", () => {
    expect(attainable(roof, 10)).toBe(10_080e9);
    expect(attainable(roof, 1000)).toBe(165.2e12);
  });

  it("is drawn on whole decades", () => {
    const axis = decades([15, 243], 3);
    expect([axis, ticks(axis), along(axis, 10), along(axis, 1000)]).toEqual([{ low: 0, high: 3 }, [1, 10, 100, 1000], 1 / 3, 1]);
  });
});

describe("values of settings", () => {
  it("are written for people", () => {
    expect([
      writtenValue("kv_cache_bytes", 2 ** 28),
      writtenValue("max_model_len", 2048),
      writtenValue("gpu_memory_utilization", 0.9),
      writtenValue("enable_prefix_caching", false),
      writtenValue("store_region", ""),
    ]).toEqual(["256 MiB", "2,048", "0.9", "off", "–"]);
  });
});
