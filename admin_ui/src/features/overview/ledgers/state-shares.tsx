import { Group, Stack } from "@mantine/core";

import type { Ledger } from "@/api/types";
import { StackedBar, Swatch } from "@/components/figures/stacked-bar";
import { Term } from "@/components/term";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

import { LEDGER_STATES } from "./ledger-states";

/** The same pool by the state of its bytes: what is needed, what could be given up, what is lost. */
export function StateShares({ title, ledger }: { title: string; ledger: Ledger }) {
  const spoken = LEDGER_STATES.map(({ key, label }) => `${label.toLowerCase()} ${humanBytes(ledger[key])}`).join(", ");
  return (
    <Stack gap={8}>
      <StackedBar
        label={`${title} by state: ${spoken}`}
        parts={LEDGER_STATES.filter(({ key }) => key !== "free").map(({ key, paint }) => ({ key, paint, value: ledger[key] }))}
        whole={ledger.capacity}
        height={10}
      />
      <dl className="states" aria-label={`${title} by state`}>
        {LEDGER_STATES.map(({ key, label, paint, meaning }) => (
          <div key={key}>
            <dt>
              <Group gap={6} wrap="nowrap">
                <Swatch paint={paint} />
                <Term help={meaning}>{label}</Term>
              </Group>
            </dt>
            <dd data-state={key} data-bytes={ledger[key]} title={`${grouped(ledger[key])} bytes`}>
              {humanBytes(ledger[key])}
            </dd>
          </div>
        ))}
      </dl>
      <Losses ledger={ledger} />
    </Stack>
  );
}

function Losses({ ledger }: { ledger: Ledger }) {
  const facts = [
    { term: "Shared", bytes: ledger.shared, help: "The used part that several requests read at once; it is there only once." },
    { term: "Unusable", bytes: ledger.fragmentation, help: "Held inside allocations, but too small a rest to store anything." },
    { term: "Scattered", bytes: ledger.external_fragmentation, help: "Free, but outside the largest free run." },
  ];
  return (
    <dl className="states small">
      {facts.map(({ term, bytes, help }) => (
        <div key={term}>
          <dt>
            <Term help={help}>{term}</Term>
          </dt>
          <dd title={`${grouped(bytes)} bytes`}>{humanBytes(bytes)}</dd>
        </div>
      ))}
    </dl>
  );
}
