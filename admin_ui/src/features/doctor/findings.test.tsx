import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import type { Findings } from "@/api/types";
import { finding, findings, NOTHING_SEEN, overviewRoutes, engineReport } from "@/testing/instruments";
import { refusal, stubNetwork } from "@/testing/network";
import { renderApp } from "@/testing/render-app";
import { overview } from "@/testing/samples";

function show(doctor: Findings) {
  const network = stubNetwork(overviewRoutes(overview(), engineReport(), doctor));
  renderApp("/");
  return network;
}

describe("the doctor's findings", () => {
  it("are not there while the engine is well, nor while too little was seen", async () => {
    show(findings());
    await screen.findByTestId("running");
    expect(screen.queryByTestId("findings")).not.toBeInTheDocument();
    expect(screen.queryByText(/finding/)).not.toBeInTheDocument();
  });

  it("stay quiet while too little was seen", async () => {
    show(NOTHING_SEEN);
    await screen.findByTestId("running");
    expect(screen.queryByTestId("findings")).not.toBeInTheDocument();
  });

  it("say what was seen, what it costs and what to do, with the exact setting to copy", async () => {
    const user = userEvent.setup();
    const setting = "LORIKEET_ENGINE__MAX_NUM_SEQS=12";
    show(findings(finding("prefix_miss"), finding("preemption", { severity: "critical", setting })));
    const banner = within(await screen.findByRole("region", { name: "Findings" }));
    expect(banner.getByRole("heading", { level: 2 })).toHaveTextContent("2 findings");
    expect(banner.getByText("in the last 60 s")).toBeVisible();
    const [first] = banner.getAllByTestId(/^finding-/);
    expect(first).toHaveAttribute("data-severity", "critical");
    const missed = within(banner.getByTestId("finding-prefix_miss"));
    expect(missed.getByText("First different token").nextElementSibling).toHaveTextContent("position 3");
    expect(missed.getByTestId("cost")).toHaveTextContent("about 31 % of prefill");
    expect(missed.getByText(/Put what changes at the end/)).toBeVisible();
    await user.click(banner.getByRole("button", { name: `Copy ${setting}` }));
    expect(await navigator.clipboard.readText()).toBe(setting);
  });

  it("lie closed when there are many, and open one by one", async () => {
    show(findings(finding("a"), finding("b"), finding("c")));
    const control = await screen.findByRole("button", { name: /The symptom of b/ });
    expect(control).toHaveAttribute("aria-expanded", "false");
    await userEvent.click(control);
    expect(control).toHaveAttribute("aria-expanded", "true");
    expect(screen.getByRole("button", { name: /The symptom of a/ })).toHaveAttribute("aria-expanded", "false");
  });

  it("are told to who does not see the page", async () => {
    show(findings(finding("a")));
    await waitFor(() => {
      expect(screen.getByText("The doctor has 1 finding: The symptom of a")).toHaveAttribute("role", "status");
    });
  });

  it("leave the overview as it is when they can't be read, and say so", async () => {
    stubNetwork({
      ...overviewRoutes(overview()),
      "GET /admin/v1/findings": refusal(500, "internal_error", "The doctor broke.", "req_9"),
    });
    renderApp("/");
    expect(await screen.findByText("The doctor broke.")).toBeVisible();
    expect(screen.getByTestId("running")).toHaveTextContent("7");
  });
});
