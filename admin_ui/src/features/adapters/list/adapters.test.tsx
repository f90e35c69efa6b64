import { screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, alias, list, overview, tenantRoutes, version } from "@/testing/samples";

const ROUTE = "GET /admin/v1/tenants/acme/adapters";
const TENANTS = {
  ...tenantRoutes("acme"),
  "GET /admin/v1/overview": { body: overview() },
};

describe("a tenant's adapters", () => {
  it("names the command to push one when there is none", async () => {
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list() } });
    renderApp("/tenants/acme/adapters");
    expect(await screen.findByText("lorikeet adapters push DIR --name NAME")).toBeVisible();
    expect(screen.getByRole("link", { name: "Upload adapter" })).toHaveAttribute("href", "/tenants/acme/upload");
  });

  it("tells the newest version's state and rank, where live points, and the size of all versions", async () => {
    const pirate = adapter(
      "pirate",
      [version("pirate", 1), version("pirate", 2, { state: "rejected", rank: 16 }), version("pirate", 3, { state: "purged" })],
      [alias("live", { 1: 100 }), alias("staging", { 1: 100 })],
    );
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list(pirate) } });
    renderApp("/tenants/acme/adapters");
    const row = await screen.findByTestId("adapter-row-pirate");
    expect(within(row).getByTestId("version-state-pirate-2")).toHaveAttribute("data-state", "rejected");
    expect(within(row).getByTestId("live-pirate")).toHaveTextContent("→ 1+1");
    expect(row).toHaveTextContent("4.70 MiB");
    expect(within(row).getByRole("link", { name: "pirate" })).toHaveAttribute("href", "/tenants/acme/adapters/pirate");
  });

  it("shows both shares of a canary", async () => {
    const versions = [version("pirate", 1), version("pirate", 2)];
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list(adapter("pirate", versions, [alias("live", { 1: 90, 2: 10 })])) } });
    renderApp("/tenants/acme/adapters");
    expect(await screen.findByTestId("live-pirate")).toHaveTextContent("→ 1 90 %→ 2 10 %");
  });

  it("tells where the engine has it and how warm it is, by the content and not by the name", async () => {
    const resident = adapter("pirate", [version("pirate", 2, { digest: "ab".repeat(32) })]);
    const cold = adapter("haiku", [version("haiku", 1)]);
    stubNetwork({ ...TENANTS, [ROUTE]: { body: list(resident, cold) } });
    renderApp("/tenants/acme/adapters");
    const row = await screen.findByTestId("adapter-row-pirate");
    await waitFor(() => {
      expect(row.querySelector("[data-residency]")).toHaveAttribute("data-residency", "resident");
    });
    expect(within(row).getAllByRole("cell").at(-1)).toHaveTextContent("4.5");
    expect(screen.getByTestId("adapter-row-haiku").querySelector("[data-residency]")).toHaveTextContent("Cold");
  });

  it("watches a version while it is validated and shows it ready without a reload", async () => {
    const validating = version("haiku", 1, { state: "validating", rank: null, digest: null, ready_at: null });
    const network = stubNetwork({ ...TENANTS, [ROUTE]: { body: list(adapter("haiku", [validating])) } });
    renderApp("/tenants/acme/adapters");
    expect(await screen.findByTestId("version-state-haiku-1")).toHaveAttribute("data-state", "validating");
    network.answer(ROUTE, { body: list(adapter("haiku", [version("haiku", 1)], [alias("live", { 1: 100 })])) });
    await waitFor(() => {
      expect(screen.getByTestId("version-state-haiku-1")).toHaveAttribute("data-state", "ready");
    });
    expect(screen.getByTestId("live-haiku")).toHaveTextContent("→ 1");
  });
});
