import { screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, list, tenant, version } from "@/testing/samples";

const TENANTS = { "GET /admin/v1/tenants": { body: list(tenant("acme")) } };
const ROUTE = "GET /admin/v1/tenants/acme/adapters";

describe("a tenant's adapters", () => {
  it("names the command to push one when there is none", async () => {
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list() } });
    renderApp("/tenants/acme");
    expect(await screen.findByText("lorikeet adapters push DIR --name NAME")).toBeVisible();
  });

  it("shows versions, the newest first, with the live alias, rank and size", async () => {
    const pirate = adapter("pirate", [version("pirate", 1), version("pirate", 2)], { live: 1 });
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list(pirate) } });
    renderApp("/tenants/acme");
    const panel = await screen.findByTestId("adapter-row-pirate");
    const rows = within(panel).getAllByRole("row").slice(1);
    expect(rows.map((row) => row.textContent.slice(0, 5))).toEqual(["2read", "1live"]);
    expect(rows[1]).toHaveTextContent("2.35 MiB");
    expect(within(panel).getByText("live → 1")).toBeVisible();
    expect(within(panel).getAllByText("cdcdcdcdcdcd")).toHaveLength(2);
  });

  it("watches a version while it is validated and shows it ready without a reload", async () => {
    const validating = version("haiku", 1, { state: "validating", rank: null, digest: null, ready_at: null });
    const network = stubNetwork({ ...TENANTS, [ROUTE]: { body: list(adapter("haiku", [validating])) } });
    renderApp("/tenants/acme");
    expect(await screen.findByTestId("version-state-haiku-1")).toHaveAttribute("data-state", "validating");
    network.answer(ROUTE, { body: list(adapter("haiku", [version("haiku", 1)], { live: 1 })) });
    await waitFor(() => {
      expect(screen.getByTestId("version-state-haiku-1")).toHaveAttribute("data-state", "ready");
    });
    expect(screen.getByText("live → 1")).toBeVisible();
  });

  it("tells why a version was rejected", async () => {
    const rejected = version("bad", 1, {
      state: "rejected",
      reject_code: "shape_mismatch",
      reject_detail: "q_proj: lora_A is 8 × 960, this model needs 8 × 576.",
    });
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list(adapter("bad", [rejected])) } });
    renderApp("/tenants/acme");
    expect(await screen.findByTestId("version-reject-bad-1")).toHaveTextContent(/shape_mismatch.*8 × 576/);
  });
});
