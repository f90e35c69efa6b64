import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { Workload } from "@/api/types";
import { capacityPlan, engineReport } from "@/testing/instruments";
import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";

import { addressOf, draftOf, FIRST, read } from "./question/draft";
import { fieldOf } from "./question/fields";
import { nearestStop } from "./question/stops";

function show(plan = capacityPlan(), address = "/planner") {
  const network = stubNetwork({
    "GET /admin/v1/engine": { body: engineReport() },
    "POST /admin/v1/plan": { body: plan },
  });
  renderApp(address);
  return {
    ...network,
    last: async (): Promise<Workload | undefined> => (await network.requests("POST /admin/v1/plan").at(-1)?.clone().json()) as Workload,
  };
}

async function type(label: string, text: string) {
  const field = await screen.findByRole("textbox", { name: label });
  await userEvent.clear(field);
  if (text !== "") await userEvent.type(field, text);
}

describe("the planner", () => {
  it("asks for the running engine's workload at first", async () => {
    const network = show();
    expect(await screen.findByTestId("subject")).toHaveTextContent("qwen3-8b · rtx4090");
    expect(await network.last()).toEqual({
      model: null,
      device: null,
      prompt_tokens: 1024,
      output_tokens: 256,
      concurrency: 8,
      knobs: {},
      live: false,
    });
    expect(await screen.findByRole("combobox", { name: "Model" })).toHaveAttribute("placeholder", "qwen2.5-7b");
  });

  it("answers with estimates, sizing steps, memory and settings to copy", async () => {
    show();
    expect(await screen.findByTestId("fits")).toHaveTextContent("28.4");
    expect(screen.getByTestId("estimate-ttft_s")).toHaveTextContent("First token (TTFT)196 ms");
    expect(screen.getByTestId("replicas")).toHaveTextContent("2");
    const steps = within(screen.getByTestId("sizing")).getAllByRole("listitem");
    expect(steps.map(({ textContent }) => textContent)).toEqual([
      "KV a request180 MiB144 KiB a token times 1,280 tokens.",
      "Theoretical concurrency285 GiB divided by that.",
    ]);
    expect(screen.getByTestId("recommended-max_num_seqs")).toHaveTextContent("max_num_seqs1865 % of 28");
    const settings = "LORIKEET_ENGINE__MAX_NUM_SEQS=18 LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS=2048";
    expect(screen.getByTestId("recommended")).toHaveTextContent(settings);
    expect(screen.getByTestId("notes")).toHaveTextContent("Prompts share no prefix.");
    expect(screen.getByRole("img", { name: "Planned memory: weights 15.0 GiB, KV pool 5.00 GiB" })).toBeVisible();
  });

  it("says in words which cells of the table fit, and which batches", async () => {
    show();
    const table = within(await screen.findByTestId("concurrency"));
    expect(table.getByRole("row", { name: "32,768 4.00 GiB, fits 128 GiB, does not fit" })).toBeVisible();
    expect(screen.getByRole("row", { name: "64 510 MiB 21.4 ms 3,840 no" })).toBeVisible();
    expect(screen.getByRole("img", { name: "Bytes read for each answer token, by batch" })).toBeVisible();
  });

  it("asks once typing rests, and again when the slider moves by keyboard", async () => {
    const network = show();
    await screen.findByTestId("fits");
    await type("Prompt tokens", "3,000");
    await waitFor(async () => {
      expect((await network.last())?.prompt_tokens).toBe(3000);
    });
    expect(network.requests("POST /admin/v1/plan").length).toBeLessThan(6);
    const slider = screen.getByRole("slider", { name: "Answer tokens" });
    expect(slider).toHaveAttribute("aria-valuetext", "256 tokens");
    slider.focus();
    await userEvent.keyboard("{ArrowRight}");
    expect(screen.getByRole("textbox", { name: "Answer tokens" })).toHaveValue("384");
    await waitFor(async () => {
      expect((await network.last())?.output_tokens).toBe(384);
    });
    await waitFor(() => {
      expect(window.location.search).toContain("output_tokens=384");
    });
  });

  it("asks for adapters, a rate, settings and the running engine's step times", async () => {
    const network = show(capacityPlan(), "/planner?load=requests_per_s&requests_per_s=2.5&knobs.kv_cache_bytes=4+GiB");
    await userEvent.click(await screen.findByRole("switch", { name: "With adapters" }));
    await type("Rank", "64");
    await userEvent.click(screen.getByRole("switch", { name: "Calibrate from the running engine" }));
    await waitFor(async () => {
      expect(await network.last()).toEqual({
        model: null,
        device: null,
        prompt_tokens: 1024,
        output_tokens: 256,
        requests_per_s: 2.5,
        adapters: { count: 100, rank: 64 },
        knobs: { kv_cache_bytes: 4 * 2 ** 30 },
        live: true,
      });
    });
    expect(screen.getByRole("textbox", { name: "KV pool" })).toHaveValue("4 GiB");
  });

  it("shows a refusal at the field that it names and keeps the last answer, saying whose it is", async () => {
    const network = show();
    await screen.findByTestId("fits");
    const sentence = "prompt_tokens: the engine has seen 64 to 2,048.";
    const refused = refusal(400, "invalid_value", sentence);
    const { error } = refused.body as { error: object };
    network.answer("POST /admin/v1/plan", { ...refused, body: { error: { ...error, param: "prompt_tokens" } } });
    await type("Prompt tokens", "9000");
    const field = screen.getByRole("textbox", { name: "Prompt tokens" });
    await waitFor(() => {
      expect(field).toHaveAccessibleDescription(sentence);
    });
    expect(field).toBeInvalid();
    expect(screen.getByRole("alert")).toHaveTextContent(sentence);
    expect(screen.getByTestId("last-answer")).toBeVisible();
    expect(screen.getByTestId("fits")).toHaveTextContent("28.4");
  });

  it("says above the answer what no field is at fault for", async () => {
    stubNetwork({
      "GET /admin/v1/engine": { body: engineReport() },
      "POST /admin/v1/plan": refusal(409, "conflict", "The engine has made too few steps."),
    });
    renderApp("/planner?live=on");
    expect(await screen.findByText("The engine has made too few steps.")).toBeVisible();
  });

  it("does not ask while a field is no number, and says so there", async () => {
    const network = show();
    await screen.findByTestId("fits");
    const before = network.requests("POST /admin/v1/plan").length;
    await type("Requests at once", "many");
    expect(screen.getByRole("textbox", { name: "Requests at once" })).toHaveAccessibleDescription(/A whole number from 1/);
    expect(screen.getByTestId("last-answer")).toBeVisible();
    expect(network.requests("POST /admin/v1/plan")).toHaveLength(before);
  });

  it("shows the two ledgers of adapters, and what a calibration stands on", async () => {
    const measured = [{ name: "itl", predicted: 0.02, low: 0.018, high: 0.023, measured: 0.021 }];
    show(
      capacityPlan({
        basis: "live",
        lora: { adapter_bytes: 15_309_000, all_bytes: 1_530_900_000, private_kv_bytes: 112 * 2 ** 30, bound_by: "kv", resident: 64 },
        calibration: { steps: 4000, error_p50: 0.03, error_p90: 0.09, measured, ranges: [{ name: "batch", low: 1, high: 16 }] },
      }),
    );
    expect(await screen.findByTestId("lora-verdict")).toHaveTextContent("Memory for contexts runs out first");
    expect(screen.getByTestId("lora-each")).toHaveTextContent("14.6 MiB");
    expect(screen.getByTestId("basis")).toHaveTextContent("Calibrated from the running engine");
    expect(screen.getByTestId("compared-itl")).toHaveTextContent("Next token (ITL)20.0 ms18.0 ms – 23.0 ms21.0 ms");
    expect(screen.getByRole("row", { name: "Requests that decode in a step 1 16" })).toBeVisible();
    expect(screen.getByTestId("calibration")).toHaveTextContent("off by 3.0 % in the middle, and by at most 9.0 %");
  });

  it("has no times where none could be estimated", async () => {
    show(capacityPlan({ estimate: null, replicas: null }));
    expect(await screen.findByText(/No times are estimated/)).toBeVisible();
    expect(screen.getByTestId("replicas")).toHaveTextContent("–");
  });
});

describe("a question", () => {
  it("survives its way through the address", () => {
    const draft = draftOf(new URLSearchParams("load=requests_per_s&requests_per_s=0.5&model=qwen3-8b&adapters=on&live=on"));
    expect(draftOf(addressOf(draft))).toEqual(draft);
    expect(addressOf(FIRST).toString()).toBe("");
  });

  it("names every field that is not well-formed", () => {
    const typed = { prompt_tokens: "0", requests_per_s: "-1", "knobs.kv_cache_bytes": "4 million", "knobs.gpu_memory_utilization": "90 %" };
    const { problems } = read({ ...FIRST, load: "requests_per_s", typed });
    expect(Object.keys(problems ?? {})).toEqual(Object.keys(typed));
  });

  it("is refused at a field that is on screen", () => {
    expect(fieldOf("concurrency", { ...FIRST, load: "requests_per_s" })).toBe("requests_per_s");
    expect(fieldOf("adapters.modules", FIRST)).toBe("adapters");
    expect(fieldOf("adapters.rank", { ...FIRST, hasAdapters: true })).toBe("adapters.rank");
    expect([fieldOf("knobs.block_size", FIRST), fieldOf("knobs.other", FIRST), fieldOf(null, FIRST)]).toEqual([
      "knobs.block_size",
      null,
      null,
    ]);
  });

  it("is dragged by round stops", () => {
    expect([nearestStop([1, 2, 4], 3), nearestStop([1, 2, 4], 100), nearestStop([1, 2, 4], 0.1)]).toEqual([2, 2, 0]);
  });
});
