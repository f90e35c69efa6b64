import { screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { kvLedger, overview } from "@/testing/samples";

import { appendRecent, WINDOW_MS } from "./use-overview";

describe("the overview", () => {
  it("shows the engine's figures and the adapters that are resident", async () => {
    stubNetwork({ "GET /admin/v1/overview": { body: overview() } });
    renderApp("/");
    expect(await screen.findByTestId("engine-state")).toHaveAttribute("data-state", "ready");
    expect(screen.getByTestId("running")).toHaveTextContent("7");
    expect(screen.getByTestId("waiting")).toHaveTextContent("2");
    expect(screen.getByTestId("tokens-per-second")).toHaveTextContent("123");
    expect(screen.getByTestId("totals")).toHaveTextContent("34,567");
    expect(screen.getByTestId("model-line")).toHaveTextContent("2,048 tokens of context · up 1 h 2 min");
    expect(screen.getByTestId("resident-acme-pirate:2")).toHaveTextContent("1,024");
  });

  it("shows every state of a ledger in exact bytes, and their sum", async () => {
    stubNetwork({ "GET /admin/v1/overview": { body: overview() } });
    renderApp("/");
    const byState = within(await screen.findByTestId("kv-ledger")).getByRole("table", { name: "KV pool by state" });
    const figures = Array.from(byState.querySelectorAll("[data-bytes]"), (cell) => cell.textContent);
    expect(figures).toEqual(["262,144", "65,536", "0", "131,072", "589,824", "1,048,576"]);
    expect(screen.queryByText("This ledger does not add up")).not.toBeInTheDocument();
    expect(screen.getByRole("table", { name: "KV pool by tenant" })).toHaveTextContent("85.7 %");
    expect(screen.getByRole("img", { name: /^Adapter arena: used 1.00 KiB/ })).toBeVisible();
  });

  it("says so when a ledger does not add up", async () => {
    stubNetwork({ "GET /admin/v1/overview": { body: overview({ kv: { ...kvLedger, used: 1 } }) } });
    renderApp("/");
    expect(await screen.findByText("This ledger does not add up")).toBeVisible();
  });

  it("says that there are no figures yet while the engine starts", async () => {
    const starting = overview({ state: "starting", kv: null, arena: null, adapters: [], device: null, dtype: null });
    stubNetwork({ "GET /admin/v1/overview": { body: starting } });
    renderApp("/");
    expect(await screen.findByTestId("engine-state")).toHaveTextContent("Engine starting");
    expect(screen.getAllByText("No figures yet")).toHaveLength(2);
    expect(screen.getByText("No adapter is in the arena")).toBeVisible();
  });

  it("shows the API's sentence and the request id when it cannot be loaded", async () => {
    stubNetwork({ "GET /admin/v1/overview": refusal(500, "internal_error", "Something broke here.", "req_7") });
    renderApp("/");
    expect(await screen.findByText("Something broke here.")).toBeVisible();
    expect(screen.getByText("Request req_7")).toBeVisible();
  });

  it("keeps one minute of token rates", () => {
    const samples = [0, 30_000, 60_000].map((at) => ({ at, value: at }));
    const kept = appendRecent(samples, { at: WINDOW_MS + 1, value: 1 });
    expect(kept.map(({ at }) => at)).toEqual([30_000, 60_000, WINDOW_MS + 1]);
  });
});
