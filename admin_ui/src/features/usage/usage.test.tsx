import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { list, tenantRoutes, usage } from "@/testing/samples";

import { bucketFor, bucketLabel, monthSoFar, starts, stretch } from "./periods";
import { byGroup, chartOf, OTHERS, roundUp, SLOTS, totals } from "./series";

const NOON = Date.UTC(2026, 10, 30, 12, 34, 56) / 1000;
const HOUR = 3600;

describe("a tenant's usage", () => {
  const thisHour = Math.floor(Date.now() / 1000 / HOUR) * HOUR;

  it("adds up, groups by what was chosen and offers the same rows as a file", async () => {
    const rows = [usage(thisHour, { key: "key_1", key_name: "bot" }), usage(thisHour - HOUR, { key: "key_2", key_name: "web", requests: 5, errors: 1 })];
    const network = stubNetwork({
      ...tenantRoutes("acme"),
      "GET /admin/v1/tenants/acme/usage": { body: list(...rows) },
    });
    renderApp("/tenants/acme/usage");
    expect(await screen.findByTestId("sum-requests")).toHaveTextContent("71 failed");
    expect(screen.getByTestId("sum-tokens")).toHaveTextContent("300");
    await userEvent.click(screen.getByRole("combobox", { name: "Grouped by" }));
    await userEvent.click(await screen.findByRole("option", { name: "key", hidden: true }));
    expect(await screen.findByTestId("usage-key-web")).toHaveTextContent("web511002050");
    expect(await screen.findByRole("img", { name: /tokens by hour/ })).toBeVisible();
    const sent = new URL(network.requests("GET /admin/v1/tenants/acme/usage").at(-1)?.url ?? "").searchParams;
    expect([sent.get("group_by"), sent.get("bucket")]).toEqual(["key", "1h"]);
    const file = new URL(screen.getByRole("link", { name: "CSV" }).getAttribute("href") ?? "", window.location.origin);
    expect(file.pathname).toBe("/admin/v1/tenants/acme/usage");
    expect(file.searchParams.get("format")).toBe("csv");
    expect(file.searchParams.get("group_by")).toBe("key");
    expect(window.location.search).toContain("by=key");
  });

  it("keeps the view in the address and shows a long period by day", async () => {
    stubNetwork({ ...tenantRoutes("acme"), "GET /admin/v1/tenants/acme/usage": { body: list(usage(thisHour)) } });
    renderApp("/tenants/acme/usage?period=30d&bucket=1h&by=version");
    const buckets = await screen.findByRole("radiogroup", { name: "Bucket" });
    expect(within(buckets).getByRole("radio", { name: "By day" })).toBeChecked();
    expect(within(buckets).getByRole("radio", { name: "By hour" })).toBeDisabled();
    expect(screen.getByRole("combobox", { name: "Grouped by" })).toHaveValue("version");
  });

  it("shows what it took of the engine in readable units, by group too, and what is not known", async () => {
    const rows = [usage(thisHour, { key: "key_1", key_name: "bot" }), usage(thisHour, { key: "key_2", key_name: "web", requests_without_cost: 1 })];
    stubNetwork({ ...tenantRoutes("acme"), "GET /admin/v1/tenants/acme/usage": { body: list(...rows) } });
    renderApp("/tenants/acme/usage?by=key");
    expect(await screen.findByTestId("cost-flops")).toHaveTextContent("8.00 TFLOP75.0 % for prompts");
    expect(screen.getByTestId("cost-read")).toHaveTextContent("8.00 GiB25.0 % for prompts");
    expect(screen.getByTestId("cost-kv")).toHaveTextContent("1.00 GiB·h");
    expect(screen.getByTestId("cost-again")).toHaveTextContent("400 GFLOP5.0 % of the arithmetic");
    expect(screen.getByTestId("usage-costs")).toHaveTextContent("without 1 of 4 requests whose costs are not known");
    expect(screen.getByTestId("cost-key-web")).toHaveTextContent("4.00 TFLOP4.00 GiB512 MiB·h1.00 MiB·h2.00 MiB200 GFLOP0 B");
  });

  it("says so when nothing was used", async () => {
    stubNetwork(tenantRoutes("acme"));
    renderApp("/tenants/acme/usage");
    expect(await screen.findByText("No requests in this period")).toBeVisible();
  });

  it("shows everybody's by tenant", async () => {
    stubNetwork({ "GET /admin/v1/usage": { body: list(usage(thisHour, { tenant: "acme" }), usage(thisHour, { tenant: "globex" })) } });
    renderApp("/usage?by=tenant");
    await waitFor(() => {
      expect(screen.getByTestId("usage-tenant-globex")).toHaveTextContent("50.0 %");
    });
  });
});

describe("periods", () => {
  it("end with the bucket of now and have whole buckets", () => {
    const day = stretch("24h", "1h", NOON);
    expect([day.end, day.end - day.start]).toEqual([Date.UTC(2026, 10, 30, 13) / 1000, 24 * HOUR]);
    expect(starts(day)).toHaveLength(24);
    expect(stretch("24h", "1d", NOON)).toEqual({ start: Date.UTC(2026, 10, 30) / 1000, end: Date.UTC(2026, 11, 1) / 1000, bucket: "1d" });
    expect(starts(stretch("90d", "1h", NOON))).toHaveLength(90);
  });

  it("are by hour only as long as hours can be told apart", () => {
    expect([bucketFor("7d", "1h"), bucketFor("30d", "1h"), bucketFor("24h", "1d")]).toEqual(["1h", "1d", "1d"]);
  });

  it("of the month begin with its first day in UTC", () => {
    expect(monthSoFar(NOON)).toEqual({ start: Date.UTC(2026, 10, 1) / 1000, end: Date.UTC(2026, 11, 1) / 1000, bucket: "1d" });
  });

  it("are labelled in UTC", () => {
    expect([bucketLabel(NOON, "1h"), bucketLabel(NOON, "1d")]).toEqual(["30 Nov, 12:34", "30 Nov"]);
  });
});

describe("series", () => {
  const day = stretch("24h", "1h", NOON);

  it("have a column for every bucket, also for those without use", () => {
    const chart = chartOf([usage(day.start), usage(day.end - HOUR, { requests: 9 })], day, null, "requests");
    expect(chart.columns.map(({ total }) => total)).toEqual([2, ...Array.from({ length: 22 }, () => 0), 9]);
    expect(chart.peak).toBe(9);
  });

  it("name the largest groups and sum up the rest", () => {
    const rows = Array.from({ length: 9 }, (_, at) => usage(day.start, { key: `k${at}`, key_name: `k${at}`, prompt_tokens: 100 * (at + 1), completion_tokens: 0 }));
    const { series, columns } = chartOf(rows, day, "key", "tokens");
    expect(series.map(({ name }) => name)).toEqual(["k8", "k7", "k6", "k5", "k4", OTHERS]);
    expect(series).toHaveLength(SLOTS);
    expect(columns[0]?.parts.at(-1)).toBe(1000);
    expect(columns[0]?.total).toBe(4500);
  });

  it("call requests without an adapter those of the base model", () => {
    const rows = [usage(0, { adapter: null, adapter_id: null }), usage(0, { adapter: "pirate", adapter_id: "adp_1" })];
    expect(byGroup(rows, "adapter").map(({ name }) => name)).toEqual(["base model", "pirate"]);
  });

  it("keep apart what has one name: keys of a rotation, and adapters of several tenants", () => {
    const rows = [usage(0, { key: "key_1", key_name: "bot" }), usage(0, { key: "key_2", key_name: "bot" })];
    expect(byGroup(rows, "key").map(({ name }) => name)).toEqual(["bot", "bot"]);
    const pirates = ["acme", "globex"].map((tenant) => usage(0, { tenant, adapter: "pirate", adapter_id: `adp_${tenant}` }));
    expect(byGroup(pirates, "adapter").map(({ name }) => name)).toEqual(["acme / pirate", "globex / pirate"]);
  });

  it("add up, and round the scale up", () => {
    expect(totals([usage(0), usage(1)]).prompt_tokens).toBe(200);
    expect([0, 1, 3, 10, 11, 4999, 6001].map(roundUp)).toEqual([1, 1, 4, 10, 20, 6000, 8000]);
  });
});
