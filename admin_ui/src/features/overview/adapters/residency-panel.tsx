import { Group, Stack } from "@mantine/core";

import type { AdapterTraffic, ResidencyCounts } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { counted, grouped } from "@/format/numbers";
import { seconds } from "@/format/time";

import { RESIDENCY } from "./states";

const EVICTIONS = [
  { code: "room", words: "to make room" },
  { code: "barrier", words: "for an overdue one" },
  { code: "retired", words: "unloaded" },
];

const HELP = {
  panel: "Where the adapter versions that are ready to serve lie at the moment.",
  loads: "Adapters brought into the arena: read from disk first, or straight from host memory.",
  evictions: "Adapters that left the arena: because another one was asked for, because one had waited too long for room, or because they were unloaded.",
  stall: "Time that requests waited for nothing but their adapter, all of it together, and the longest such wait.",
};

/** How many adapters are how near, and what moving them has cost. */
export function ResidencyPanel({ counts, traffic }: { counts: ResidencyCounts; traffic: AdapterTraffic }) {
  const known = RESIDENCY.reduce((sum, { key }) => sum + counts[key], 0);
  return (
    <Panel title="Adapters" help={HELP.panel} note={counted(known, "version")} testId="residency">
      <Stack gap="sm">
        <dl className="states">
          {RESIDENCY.map(({ key, label, meaning }) => (
            <div key={key}>
              <dt>
                <Term help={meaning}>{label}</Term>
              </dt>
              <dd className="count" data-residency={key}>
                {grouped(counts[key])}
              </dd>
            </div>
          ))}
        </dl>
        <Traffic traffic={traffic} />
      </Stack>
    </Panel>
  );
}

function Traffic({ traffic }: { traffic: AdapterTraffic }) {
  const { loads, evictions, stall_s, longest_wait_s } = traffic;
  return (
    <Stack gap={4} fz="sm" data-testid="adapter-traffic">
      <Fact term="Loads" help={HELP.loads}>
        {`${grouped(loads.disk ?? 0)} from disk, ${grouped(loads.host ?? 0)} from host memory`}
      </Fact>
      <Fact term="Evictions" help={HELP.evictions}>
        {EVICTIONS.map(({ code, words }) => `${grouped(evictions[code] ?? 0)} ${words}`).join(", ")}
      </Fact>
      <Fact term="Waiting for adapters" help={HELP.stall}>
        {`${seconds(stall_s)}, longest ${seconds(longest_wait_s)}`}
      </Fact>
    </Stack>
  );
}

function Fact({ term, help, children }: { term: string; help: string; children: string }) {
  return (
    <Group gap="sm" justify="space-between" align="baseline" wrap="nowrap" className="fact">
      <Term help={help}>{term}</Term>
      <span>{children}</span>
    </Group>
  );
}
