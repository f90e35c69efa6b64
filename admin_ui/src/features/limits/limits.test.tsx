import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { limits, list, plan, tenantRoutes } from "@/testing/samples";

import { amount, readAmount, writtenAmount } from "./amounts";
import { inOrder } from "./dimensions";

const LIMITS = "/admin/v1/tenants/acme/limits";

describe("limits of a tenant", () => {
  it("sets one of its own and shows that it holds now", async () => {
    const network = stubNetwork({
      ...tenantRoutes("acme"),
      [`PUT ${LIMITS}`]: {
        body: {
          limits: limits({
            rpm: { value: 60, burst: 10, origin: "tenant", own: { value: 60, burst: 10 }, plan: { value: 6000, burst: 1000 } },
          }),
        },
      },
    });
    renderApp("/tenants/acme/limits");
    expect(await screen.findByTestId("limit-rpm")).toHaveAttribute("data-origin", "plan");
    await userEvent.click(screen.getByRole("button", { name: "Set Requests a minute" }));
    const field = await screen.findByRole("textbox", { name: "Limit" });
    expect(field).toHaveValue("6,000");
    await userEvent.clear(field);
    await userEvent.type(field, "7000");
    expect(screen.getByText(/More than the plan allows, 6,000/)).toBeVisible();
    await userEvent.clear(field);
    await userEvent.type(field, "60");
    const burst = screen.getByRole("textbox", { name: "Burst" });
    await userEvent.clear(burst);
    await userEvent.type(burst, "10");
    await userEvent.click(screen.getByRole("button", { name: "Set" }));
    await waitFor(() => {
      expect(screen.getByTestId("limit-rpm")).toHaveAttribute("data-origin", "tenant");
    });
    expect(await network.requests(`PUT ${LIMITS}`)[0]?.json()).toEqual({ limits: { rpm: { value: 60, burst: 10 } } });
  });

  it("takes its own away again", async () => {
    const own = { value: 2 ** 30, burst: null };
    const bytes = { value: 50 * 2 ** 30, burst: null };
    const network = stubNetwork({
      ...tenantRoutes("acme"),
      [`GET ${LIMITS}`]: {
        body: { limits: limits({ adapter_bytes: { ...own, origin: "tenant", own, plan: bytes } }) },
      },
      [`PUT ${LIMITS}`]: { body: { limits: limits() } },
    });
    renderApp("/tenants/acme/limits");
    expect(await screen.findByTestId("limit-adapter_bytes")).toHaveTextContent("1.00 GiBtenant1.00 GiB50.0 GiB");
    await userEvent.click(screen.getByRole("button", { name: "Edit Bytes of adapters" }));
    await userEvent.click(await screen.findByRole("button", { name: "Remove" }));
    await waitFor(() => {
      expect(screen.getByTestId("limit-adapter_bytes")).toHaveAttribute("data-origin", "plan");
    });
    expect(await network.requests(`PUT ${LIMITS}`)[0]?.json()).toEqual({ limits: { adapter_bytes: null } });
  });

  it("sets a figure of a plan", async () => {
    const network = stubNetwork({
      "GET /admin/v1/plans": { body: list(plan("small")) },
      "GET /admin/v1/plans/small": { body: plan("small") },
      "PUT /admin/v1/plans/small": { body: plan("small") },
    });
    renderApp("/plans/small");
    await userEvent.click(await screen.findByRole("button", { name: "Edit Tokens a month" }));
    const dialog = await screen.findByRole("dialog");
    expect(within(dialog).queryByRole("button", { name: "Remove" })).not.toBeInTheDocument();
    const field = within(dialog).getByRole("textbox", { name: "Limit" });
    await userEvent.clear(field);
    await userEvent.type(field, "2.5 million");
    await userEvent.click(within(dialog).getByRole("button", { name: "Set" }));
    await waitFor(() => {
      expect(network.requests("PUT /admin/v1/plans/small")).toHaveLength(1);
    });
    expect(await network.requests("PUT /admin/v1/plans/small")[0]?.json()).toEqual({
      limits: { monthly_tokens: { value: 2_500_000, burst: null } },
    });
  });
});

describe("amounts", () => {
  it("says round figures in words and others to the last one", () => {
    expect([0, 6000, 1e6, 1_500_000, 1_234_567, 1e12].map((value) => amount(value, "tokens"))).toEqual([
      "0",
      "6,000",
      "1 million",
      "1.5 million",
      "1,234,567",
      "1 trillion",
    ]);
    expect(amount(50 * 2 ** 30, "bytes")).toBe("50.0 GiB");
  });

  it("reads what people type", () => {
    expect(["6,000", "4m", "1.5 million", "1 trillion", "0"].map((typed) => readAmount(typed, "tokens"))).toEqual([
      6000, 4_000_000, 1_500_000, 1e12, 0,
    ]);
    expect(["50 GiB", "1.5kib", "7"].map((typed) => readAmount(typed, "bytes"))).toEqual([50 * 2 ** 30, 1536, 7]);
    const bad = ["", "-1", "1.5", "x", "4 gib", "9".repeat(20), "1e3", "NaN"];
    expect(bad.filter((typed) => readAmount(typed, "tokens") !== null)).toEqual([]);
    expect(readAmount("4 m", "bytes")).toBeNull();
  });

  it("writes a figure so that it is read back as the same", () => {
    for (const value of [0, 7, 1_234_567, 2_000_000, 1e12, 2 ** 31 - 1]) {
      expect(readAmount(writtenAmount(value, "tokens"), "tokens")).toBe(value);
    }
    for (const value of [0, 1023, 5 * 2 ** 30, 2 ** 30 + 1, 3_221_225_473]) {
      expect(readAmount(writtenAmount(value, "bytes"), "bytes")).toBe(value);
    }
  });

  it("shows a dimension that it does not know by its own name, last", () => {
    expect(inOrder(["zzz", "keys", "rpm"]).map(({ label }) => label)).toEqual(["Requests a minute", "Keys", "zzz"]);
  });
});
