import { Stack, Text } from "@mantine/core";

import { Command } from "@/components/command";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { QueryState } from "@/components/feedback/query-state";

import { AdapterPanel } from "./adapter-panel";
import { useAdapters } from "./use-adapters";

export function AdaptersTab({ slug }: { slug: string }) {
  const query = useAdapters(slug);
  return (
    <Stack gap="md" data-testid="adapters">
      <QueryState query={query}>
        {({ data }) =>
          data.length === 0 ? (
            <NoAdapters />
          ) : (
            <>
              {data.map((adapter) => (
                <AdapterPanel key={adapter.id} adapter={adapter} />
              ))}
            </>
          )
        }
      </QueryState>
    </Stack>
  );
}

function NoAdapters() {
  return (
    <Panel>
      <Empty title="No adapters yet">
        <Text fz="sm" c="dimmed" maw={460}>
          Push a directory that PEFT saved, with one of this tenant&apos;s keys. It shows up here by itself, is
          validated, and becomes ready.
        </Text>
        <Command>lorikeet adapters push DIR --name NAME</Command>
      </Empty>
    </Panel>
  );
}
