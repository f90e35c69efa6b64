import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { Overview } from "@/api/types";
import { engineReport, overviewRoutes } from "@/testing/instruments";
import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { engineless, kvLedger, overview } from "@/testing/samples";

import { appendRecent, remember, WINDOW_MS } from "./use-overview";

function show(body: Overview) {
  stubNetwork(overviewRoutes(body));
  renderApp("/");
}

async function panel(testId: string) {
  return within(await screen.findByTestId(testId));
}

function figures(table: HTMLElement, attribute: string) {
  return Array.from(table.querySelectorAll<HTMLElement>(`[data-${attribute}]`), (cell) => [
    cell.getAttribute(`data-${attribute}`),
    cell.textContent,
  ]);
}

describe("the overview", () => {
  it("shows what the engine does now", async () => {
    show(overview());
    expect(await screen.findByTestId("engine-state")).toHaveAttribute("data-state", "ready");
    expect(screen.getByTestId("running")).toHaveTextContent("7");
    expect(screen.getByTestId("waiting")).toHaveTextContent("2");
    expect(screen.getByTestId("swapped")).toHaveTextContent("1");
    expect(screen.getByTestId("seats")).toHaveTextContent("7 of 24 seats taken, 8 closed for want of memory");
    expect(screen.getByTestId("tokens-per-second")).toHaveTextContent("123");
    expect(screen.getByTestId("totals")).toHaveTextContent("34,567");
    expect(screen.getByTestId("model-line")).toHaveTextContent("2,048 tokens of context · up 1 h 2 min");
  });

  it("shows queues by tenant with what each is due, and no share of service before two looks", async () => {
    show(overview());
    const row = (await panel("queues")).getByTestId("queue-acme");
    expect(within(row).getAllByRole("cell").map(({ textContent }) => textContent)).toEqual([
      "acme",
      "5",
      "2",
      "3",
      "75.0 %",
      "–",
    ]);
  });

  it("keeps a tenant's row when it has nothing queued", async () => {
    show(overview({ queues: [] }));
    expect((await panel("queues")).getByTestId("queue-globex")).toHaveTextContent("globex00–––");
  });

  it("shows a pool by tenant in exact bytes that sum to its capacity", async () => {
    show(overview());
    const kv = await panel("kv-ledger");
    const byTenant = kv.getByRole("table", { name: "KV pool by tenant" });
    const bytes = Array.from(byTenant.querySelectorAll("[data-bytes]"), (cell) => Number(cell.getAttribute("data-bytes")));
    expect(bytes).toEqual([393_216, 65_536, 589_824, 1_048_576]);
    expect(byTenant).toHaveTextContent(/acme384 KiB393,21637.5 %/);
    expect(kv.getByRole("img", { name: "KV pool by tenant: acme 384 KiB, globex 64.0 KiB, free 576 KiB" })).toBeVisible();
  });

  it("shows the same pool by the state of its bytes", async () => {
    show(overview());
    const kv = await panel("kv-ledger");
    expect(kv.getByRole("img", { name: /by state: used 256 KiB, reserved 64.0 KiB, in flight 0 B, cached 128 KiB/ })).toBeVisible();
    expect(kv.getByText("31.3 % in use")).toBeVisible();
    expect(screen.queryByText("This ledger does not add up")).not.toBeInTheDocument();
  });

  it("says so when a ledger's states or its tenants do not add up", async () => {
    show(overview({ kv: { ...kvLedger, used: 1 }, arena: { ...kvLedger, by_tenant: [] } }));
    expect(await screen.findAllByText("This ledger does not add up")).toHaveLength(2);
  });

  it("says what a pool without memory means", async () => {
    show(overview());
    expect((await panel("swap-ledger")).getByText(/LORIKEET_ENGINE__SWAP_SPACE/)).toBeVisible();
  });

  it("shows the prefix hit rate and why prompts were not found, in plain words", async () => {
    show(overview());
    const prefix = await panel("prefix");
    expect(prefix.getByTestId("hit-rate")).toHaveTextContent("25.0 %");
    expect(prefix.getByRole("row", { name: "Never seen before 6 75.0 %" })).toBeVisible();
    expect(prefix.getByRole("row", { name: "acme 1,000 50.0 %" })).toBeVisible();
  });

  it("shows a dash and not a rate before the first prompt", async () => {
    const none = { queried_tokens: 0, hit_tokens: 0, hit_rate: null, recomputed_hit_tokens: 0 };
    show(overview({ prefix: { ...none, by_tenant: [], by_adapter: [], misses: {} } }));
    expect((await panel("prefix")).getByTestId("hit-rate")).toHaveTextContent("–");
  });

  it("counts adapters by how near they are, and lists the known ones", async () => {
    show(overview());
    const residency = await screen.findByTestId("residency");
    expect(figures(residency, "residency")).toEqual([
      ["cold", "11"],
      ["loading", "1"],
      ["host", "4"],
      ["resident", "3"],
      ["draining", "2"],
    ]);
    expect(residency).toHaveTextContent("2.3 s, longest 34 ms");
    expect(screen.getByTestId("adapter-acme-pirate:2")).toHaveTextContent("acmepirate:2Resident1.00 KiB31");
  });

  it("counts preemptions by kind", async () => {
    show(overview());
    expect(figures(await screen.findByTestId("preemptions"), "preemption")).toEqual([
      ["swap", "3"],
      ["recompute", "8"],
      ["wait", "1"],
    ]);
  });

  it("adds refusals up by who is at fault, and drops no reason that it does not know", async () => {
    show(overview({ refusals: { by_reason: { tenant_queue: 12, ttft_tenant: 1, ttft_kv: 7, new_reason: 5 }, expired: 3 } }));
    const refusals = await panel("refusals");
    expect(refusals.getByRole("row", { name: "Tenant's own limit 429 13" })).toBeVisible();
    expect(refusals.getByRole("row", { name: "Adapter loading 503 0" })).toBeVisible();
    expect(refusals.getByRole("row", { name: "Engine full 503 12" })).toBeVisible();
    expect(refusals.getByRole("row", { name: "new reason 5" })).toBeVisible();
    expect(refusals.getByRole("row", { name: "Expired in the queue 504 3" })).toBeVisible();
  });

  it("explains a term to somebody who reaches it by keyboard", async () => {
    show(overview());
    (await panel("residency")).getByRole("button", { name: "Draining" }).focus();
    expect(await screen.findByRole("tooltip")).toHaveTextContent(/takes no new requests/);
    await userEvent.tab();
  });

  it("shows waiting times by what they are made of, and dashes for what nobody waited for", async () => {
    show(overview());
    const row = async (name: string) => {
      const table = (await panel("latency")).getByRole("table");
      return table.querySelector(`[data-latency="${name}"]`)?.textContent;
    };
    expect(await row("ttft-all")).toBe("First token (TTFT)120 ms240 ms480 ms");
    expect(await row("queue-all")).toBe("Queue20.0 ms40.0 ms80.0 ms");
    expect(await row("itl-adapter")).toBe("adapters–––");
  });

  it("shows the mix of steps and each kind's own utilisation, never one of all", async () => {
    show(overview());
    const phases = await panel("phases");
    expect(phases.getByRole("img")).toHaveAccessibleName(
      "Time by kind of step: prefill 10.0 %, decode 60.0 %, mixed 0.0 %, copy 0.1 %, idle 29.9 %",
    );
    expect(phases.getByRole("row", { name: "Prefill 10.0 % 88.4 % 59.5 %" })).toBeVisible();
    expect(phases.getByRole("row", { name: "Decode 60.0 % 7.4 % 81.6 %" })).toBeVisible();
    expect(phases.getByRole("row", { name: "Mixed – – –" })).toBeVisible();
    expect(screen.getByTestId("timeline-mfu")).toHaveTextContent("MFU20.0 %");
  });

  it("says that too little was seen before there are figures", async () => {
    stubNetwork(overviewRoutes(overview(), engineReport({ performance: null })));
    renderApp("/");
    expect(await screen.findByText("Too little seen yet")).toBeVisible();
    expect(screen.getByTestId("kv-ledger")).toBeVisible();
  });

  it("shows no figures while the engine starts", async () => {
    show(engineless("starting"));
    expect(await screen.findByTestId("engine-state")).toHaveTextContent("Engine starting");
    expect(screen.getByText("No figures yet")).toBeVisible();
    expect(screen.queryByTestId("running")).not.toBeInTheDocument();
  });

  it("shows the API's sentence and the request id when it cannot be loaded", async () => {
    stubNetwork({ ...overviewRoutes(overview()), "GET /admin/v1/overview": refusal(500, "internal_error", "Something broke here.", "req_7") });
    renderApp("/");
    expect(await screen.findByText("Something broke here.")).toBeVisible();
    expect(screen.getByText("Request req_7")).toBeVisible();
  });

  it("keeps one minute of token rates", () => {
    const samples = [0, 30_000, 60_000].map((at) => ({ at, value: at }));
    const kept = appendRecent(samples, { at: WINDOW_MS + 1, value: 1 });
    expect(kept.map(({ at }) => at)).toEqual([30_000, 60_000, WINDOW_MS + 1]);
  });

  it("remembers nothing of an engine that does not answer", () => {
    const before = remember(undefined, overview(), 1000);
    const after = remember(before, engineless("unavailable"), 3000);
    expect(after).toEqual({ ...before, latest: after.latest });
  });

  it("counts what there is, and says that the books agree", async () => {
    show(overview());
    expect(await screen.findByTestId("platform-line")).toHaveTextContent(
      /2 gateways · 2 tenants · 1 adapter ready · 0 jobs open · books agree/,
    );
    expect(screen.queryByTestId("platform-trouble")).not.toBeInTheDocument();
  });

  it("names what somebody should look into", async () => {
    show({ ...overview(), rates_degraded: true, books: { checked_at: 1_700_000_000, mismatches: 3 } });
    const [rates, books] = await screen.findAllByTestId("platform-trouble");
    expect(rates).toHaveTextContent("Redis can’t be reached");
    expect(books).toHaveTextContent("disagree on 3 sums");
    expect(screen.getByTestId("platform-line")).not.toHaveTextContent("books");
  });
});
