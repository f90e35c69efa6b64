import { Group, Stack, Text } from "@mantine/core";

import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { Panel } from "@/components/layout/panel";
import { counted } from "@/format/numbers";

import { CreateKey } from "../form/create-key";
import { useKeys } from "../use-keys";
import { KeyTable } from "./key-table";

export function KeysTab({ slug }: { slug: string }) {
  const query = useKeys(slug);
  return (
    <Stack gap="md" data-testid="keys">
      <Group justify="space-between">
        <Text fz="sm" c="dimmed">
          {query.data ? counted(query.data.data.length, "key") : ""}
        </Text>
        <CreateKey slug={slug} />
      </Group>
      <QueryState query={query}>
        {({ data }) => <Panel flush>{data.length === 0 ? <NoKeys /> : <KeyTable slug={slug} keys={data} />}</Panel>}
      </QueryState>
    </Stack>
  );
}

function NoKeys() {
  return (
    <Empty title="No keys yet">
      <Text fz="sm" c="dimmed" maw={440}>
        A key lets the tenant&apos;s programs send requests and push adapters. Create one; its secret is shown once.
      </Text>
    </Empty>
  );
}
