import { SimpleGrid, Text } from "@mantine/core";

import type { TenantDetail } from "@/api/types";
import { Figure } from "@/components/figures/figure";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

const HELP = {
  adapters: "Weights of its adapters that the engine has on its device.",
  kv: "Blocks of its running requests and of its cached prefixes.",
};

/** What the engine's ledgers say that the tenant holds. */
export function MemoryPanel({ tenant: { memory } }: { tenant: TenantDetail }) {
  return (
    <Panel title="Memory held now" testId="tenant-memory">
      <SimpleGrid cols={2} spacing="md">
        <Held term="Adapters" help={HELP.adapters} bytes={memory?.adapter_bytes} testId="adapter-bytes" />
        <Held term="KV cache" help={HELP.kv} bytes={memory?.kv_bytes} testId="kv-bytes" />
      </SimpleGrid>
      {memory === null && (
        <Text fz="sm" c="dimmed">
          The engine doesn&apos;t answer.
        </Text>
      )}
    </Panel>
  );
}

interface HeldProps {
  term: string;
  help: string;
  bytes: number | undefined;
  testId: string;
}

function Held({ term, help, bytes, testId }: HeldProps) {
  const value = bytes === undefined ? "–" : humanBytes(bytes);
  const note = bytes === undefined ? "not known" : `${grouped(bytes)} bytes`;
  return <Figure term={term} help={help} value={value} note={note} testId={testId} />;
}
