import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, alias, list, overview, tenantRoutes, version } from "@/testing/samples";

import { obstaclesAmong, stepsOf } from "./steps";

const PIRATE = "/admin/v1/tenants/acme/adapters/pirate";
const OVERVIEW = { "GET /admin/v1/overview": { body: overview() } };
const NOW = 1_800_000_000;

describe("the steps of a version", () => {
  it("are those that its state allows", () => {
    const kinds = (state: Parameters<typeof version>[2]) => stepsOf(version("pirate", 1, state), [], NOW).map(({ kind }) => kind);
    expect(kinds({ state: "ready" })).toEqual(["retire", "quarantine", "delete"]);
    expect(kinds({ state: "retired" })).toEqual(["restore", "quarantine", "delete"]);
    expect(kinds({ state: "quarantined" })).toEqual(["release", "delete"]);
    expect(kinds({ state: "failed_internal" })).toEqual(["retry", "delete"]);
    expect(kinds({ state: "purged" })).toEqual([]);
  });

  it("can't retire or delete what an alias points at, but can quarantine it", () => {
    const steps = stepsOf(version("pirate", 2), [alias("live", { 1: 90, 2: 10 }), alias("old", { 1: 100 })], NOW);
    expect(steps.map(({ kind, obstacle }) => [kind, obstacle === null])).toEqual([
      ["retire", false],
      ["quarantine", true],
      ["delete", false],
    ]);
    expect(obstaclesAmong(steps)).toEqual([{ steps: "Retire and Delete", why: "live points at it. Point it elsewhere first." }]);
  });

  it("can't be taken while the files are being removed", () => {
    const steps = stepsOf(version("pirate", 1, { state: "retired", purge_after: NOW }), [], NOW);
    expect(new Set(steps.map(({ obstacle }) => obstacle))).toEqual(new Set(["Its files are being removed."]));
  });
});

describe("taking a step", () => {
  it("explains in the menu what stands in its way", async () => {
    const network = stubNetwork({ ...OVERVIEW, [`GET ${PIRATE}`]: { body: adapter("pirate", [version("pirate", 1)], [alias("live", { 1: 100 })]) } });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Steps for version 1" }));
    const item = await screen.findByRole("menuitem", { name: /Retire.*live points at it/, hidden: true });
    expect(item).toHaveAttribute("aria-disabled", "true");
    await userEvent.click(item);
    expect(screen.queryByRole("dialog")).not.toBeInTheDocument();
    expect(network.requests(`POST ${PIRATE}/versions/1/retire`)).toHaveLength(0);
  });

  it("quarantines with the reason that was given", async () => {
    const network = stubNetwork({
      ...OVERVIEW,
      [`GET ${PIRATE}`]: { body: adapter("pirate", [version("pirate", 1)]) },
      [`POST ${PIRATE}/versions/1/quarantine`]: { body: version("pirate", 1, { state: "quarantined" }) },
    });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Steps for version 1" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: "Quarantine", hidden: true }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Reason/ }), "leaks names");
    network.answer(`GET ${PIRATE}`, { body: adapter("pirate", [version("pirate", 1, { state: "quarantined", retire_reason: "leaks names" })]) });
    await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Quarantine" }));
    await waitFor(() => {
      expect(screen.getByTestId("version-state-pirate-1")).toHaveAttribute("data-state", "quarantined");
    });
    expect(await network.requests(`POST ${PIRATE}/versions/1/quarantine`)[0]?.json()).toEqual({ reason: "leaks names" });
    expect(screen.getByText("Quarantined: leaks names")).toBeVisible();
  });

  it("deletes an adapter only after its name was typed", async () => {
    const network = stubNetwork({
      ...OVERVIEW,
      ...tenantRoutes("acme"),
      "GET /admin/v1/tenants/acme/adapters": { body: list() },
      [`GET ${PIRATE}`]: { body: adapter("pirate", [version("pirate", 1)]) },
      [`DELETE ${PIRATE}`]: { status: 204 },
    });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Delete adapter" }));
    expect(await screen.findByRole("button", { name: "Delete" })).toBeDisabled();
    await userEvent.type(screen.getByRole("textbox", { name: "Type pirate to confirm" }), "pirate");
    await userEvent.click(screen.getByRole("button", { name: "Delete" }));
    expect(await screen.findByText("No adapters yet")).toBeVisible();
    expect(network.requests(`DELETE ${PIRATE}`)).toHaveLength(1);
  });
});
