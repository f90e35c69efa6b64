import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { adapter, alias, list, overview, version } from "@/testing/samples";

const PIRATE = "/admin/v1/tenants/acme/adapters/pirate";
const LIVE = `${PIRATE}/aliases/live`;
const OVERVIEW = { "GET /admin/v1/overview": { body: overview() } };
const versions = [version("pirate", 1), version("pirate", 2), version("pirate", 3)];

function stub(live: ReturnType<typeof alias>, routes: Parameters<typeof stubNetwork>[0] = {}) {
  return stubNetwork({ ...OVERVIEW, [`GET ${PIRATE}`]: { body: adapter("pirate", versions, [live]) }, ...routes });
}

describe("the aliases of an adapter", () => {
  it("starts a canary of the newest other version with a preset share, on the revision that was seen", async () => {
    const network = stub(alias("live", { 2: 100 }, { revision: 7 }), { [`PUT ${LIVE}`]: { body: alias("live", { 2: 95, 3: 5 }) } });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Start canary" }));
    await userEvent.click(await screen.findByRole("button", { name: "5 %" }));
    expect(screen.getByTestId("main-share")).toHaveTextContent("95 %");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await screen.findByText("Alias live changed.");
    const [request] = network.requests(`PUT ${LIVE}`);
    expect(request?.headers.get("if-match")).toBe('"7"');
    expect(await request?.json()).toEqual({
      targets: [
        { version: 2, weight: 95 },
        { version: 3, weight: 5 },
      ],
      sticky: "none",
      guard: null,
    });
  });

  it("promotes the version on trial and keeps stickiness and guard", async () => {
    const guard = { max_error_rate: 0.05, max_ttft_ratio: null, min_requests: 200 };
    const network = stub(alias("live", { 2: 90, 3: 10 }, { sticky: "user", guard }), { [`PUT ${LIVE}`]: { body: alias("live", { 3: 100 }) } });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Promote 3" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Reason/ }), "held for a week");
    await userEvent.click(screen.getByRole("button", { name: "Promote" }));
    await screen.findByText("Alias live changed.");
    expect(await network.requests(`PUT ${LIVE}`)[0]?.json()).toEqual({
      targets: [{ version: 3, weight: 100 }],
      sticky: "user",
      guard,
      reason: "held for a week",
    });
  });

  it("aborts a canary in favour of the version with the largest share", async () => {
    const network = stub(alias("live", { 2: 90, 3: 10 }), { [`PUT ${LIVE}`]: { body: alias("live", { 2: 100 }) } });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Abort" }));
    await userEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Abort" }));
    await waitFor(() => {
      expect(network.requests(`PUT ${LIVE}`)).toHaveLength(1);
    });
    expect(await network.requests(`PUT ${LIVE}`)[0]?.json()).toMatchObject({ targets: [{ version: 2, weight: 100 }] });
  });

  it("tells what changed when somebody was faster, and then goes by what holds now", async () => {
    const network = stub(alias("live", { 2: 100 }, { revision: 4 }), {
      [`PUT ${LIVE}`]: refusal(409, "revision_conflict", "The alias 'live' is at revision 5."),
      [`GET ${LIVE}`]: { body: alias("live", { 1: 100 }, { revision: 5, updated_by: "key bot" }) },
    });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Start canary" }));
    await userEvent.click(await screen.findByRole("button", { name: "Save" }));
    const conflict = await screen.findByTestId("conflict");
    expect(conflict).toHaveTextContent("key bot changed it in the meantime");
    expect(conflict).toHaveTextContent("It pointed at version 2; now it points at version 1.");
    network.answer(`PUT ${LIVE}`, { body: alias("live", { 1: 100 }, { revision: 6 }) });
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await screen.findByText("Alias live changed.");
    expect(network.requests(`PUT ${LIVE}`).map(({ headers }) => headers.get("if-match"))).toEqual(['"4"', '"5"']);
    expect(await network.requests(`PUT ${LIVE}`)[1]?.json()).toMatchObject({ targets: [{ version: 1, weight: 100 }] });
  });

  it("creates an alias only where there is none", async () => {
    const network = stub(alias("live", { 2: 100 }), { [`PUT ${PIRATE}/aliases/staging`]: { body: alias("staging", { 3: 100 }) } });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Add alias" }));
    await userEvent.type(await screen.findByRole("textbox", { name: /Name/ }), "staging");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await screen.findByText("Alias staging changed.");
    const [request] = network.requests(`PUT ${PIRATE}/aliases/staging`);
    expect([request?.headers.get("if-none-match"), request?.headers.get("if-match")]).toEqual(["*", null]);
    expect(await request?.json()).toMatchObject({ targets: [{ version: 3, weight: 100 }] });
  });

  it("rolls back to a revision of the history", async () => {
    const entry = { targets: [{ version: 1, weight: 100 }], sticky: "none", guard: null, actor: "key bot", reason: null, at: 1_700_000_000 };
    const network = stub(alias("live", { 2: 100 }, { revision: 2 }), {
      [`GET ${LIVE}/history`]: { body: list({ ...entry, revision: 2 }, { ...entry, revision: 1 }) },
      [`POST ${LIVE}/rollback`]: { body: alias("live", { 1: 100 }, { revision: 3 }) },
    });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "History" }));
    expect(await screen.findByTestId("revision-live-2")).toHaveTextContent("in force now");
    await userEvent.click(screen.getByRole("button", { name: "Roll back to this: revision 1 of live" }));
    await userEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Roll back" }));
    await screen.findByText("Alias live changed.");
    const [request] = network.requests(`POST ${LIVE}/rollback`);
    expect(request?.headers.get("if-match")).toBe('"2"');
    expect(await request?.json()).toEqual({ to_revision: 1 });
  });

  it("tells why a change was refused and leaves the dialog open", async () => {
    stub(alias("live", { 2: 90, 3: 10 }), {
      [`PUT ${LIVE}`]: refusal(503, "adapter_unavailable", "The engine cannot load version 3."),
    });
    renderApp("/tenants/acme/adapters/pirate");
    await userEvent.click(await screen.findByRole("button", { name: "Promote 3" }));
    await userEvent.click(await screen.findByRole("button", { name: "Promote" }));
    expect(await screen.findByText("The engine cannot load version 3.")).toBeVisible();
    expect(screen.getByRole("dialog")).toBeVisible();
  });
});
