import { Stack } from "@mantine/core";

import type { Preemptions } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

const HELP =
  "When the KV pool is full, one running request makes room for the others, in the way that costs least. It goes on " +
  "later; its caller only waits longer.";

const KINDS = [
  { key: "swap", label: "Swapped", meaning: "Its blocks were copied to host memory and came back later." },
  { key: "recompute", label: "Recomputed", meaning: "Its blocks were dropped and computed again later." },
  { key: "wait", label: "Waited", meaning: "It only waited, because another request was about to end." },
] as const;

/** What was done when KV blocks ran out, and what that cost. */
export function PreemptionsPanel({ preemptions }: { preemptions: Preemptions }) {
  return (
    <Panel title="Preemptions" help={HELP} note="since the engine's start" testId="preemptions">
      <Stack gap="sm">
        <dl className="states">
          {KINDS.map(({ key, label, meaning }) => (
            <div key={key}>
              <dt>
                <Term help={meaning}>{label}</Term>
              </dt>
              <dd className="count" data-preemption={key}>
                {grouped(preemptions[key])}
              </dd>
            </div>
          ))}
        </dl>
        <Costs preemptions={preemptions} />
      </Stack>
    </Panel>
  );
}

function Costs({ preemptions }: { preemptions: Preemptions }) {
  const costs = [
    { name: "Copied out", figure: humanBytes(preemptions.swap_out_bytes) },
    { name: "Copied back", figure: humanBytes(preemptions.swap_in_bytes) },
    { name: "Redone tokens", figure: grouped(preemptions.recomputed_tokens) },
  ];
  return (
    <dl className="states small">
      {costs.map(({ name, figure }) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{figure}</dd>
        </div>
      ))}
    </dl>
  );
}
