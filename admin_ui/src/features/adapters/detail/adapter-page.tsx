import { Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { Link } from "wouter";

import { asApiError } from "@/api/errors";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { UploadIcon } from "@/components/icons";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { counted } from "@/format/numbers";
import { dateTime } from "@/format/time";

import { adaptersAddress, tenantAddress, uploadAddress } from "../addresses";
import { AliasPanel } from "../aliases/alias-panel";
import { shownVersions } from "../states";
import { useAdapter } from "../use-adapters";
import { DeleteAdapter } from "./delete-adapter";
import { VersionsPanel } from "./versions-panel";

export function AdapterPage({ slug, name }: { slug: string; name: string }) {
  const query = useAdapter(slug, name);
  const adapter = query.data;
  const isMissing = adapter === undefined && asApiError(query.error).status === 404;
  return (
    <Page
      title={name}
      testId="adapter"
      trail={[
        { label: "Tenants", to: "/tenants" },
        { label: slug, to: tenantAddress(slug) },
      ]}
      subtitle={
        adapter && (
          <>
            {adapter.description && <Text fz="sm">{adapter.description}</Text>}
            {counted(shownVersions(adapter.versions).kept.length, "version")} · since {dateTime(adapter.created_at)}
          </>
        )
      }
      actions={
        adapter && (
          <Group gap="xs">
            <DeleteAdapter slug={slug} adapter={adapter} />
            <Button component={Link} to={uploadAddress(slug, name)} leftSection={<UploadIcon />}>
              Upload version
            </Button>
          </Group>
        )
      }
    >
      {isMissing ? (
        <NoSuchAdapter slug={slug} name={name} />
      ) : (
        <QueryState query={query}>
          {(data) => (
            <Stack gap="md">
              <AliasPanel slug={slug} adapter={data} />
              <VersionsPanel slug={slug} adapter={data} />
            </Stack>
          )}
        </QueryState>
      )}
    </Page>
  );
}

export function NoSuchAdapter({ slug, name }: { slug: string; name: string }) {
  return (
    <Panel>
      <Empty title={`There is no adapter “${name}”`}>
        <Anchor component={Link} to={adaptersAddress(slug)} fz="sm">
          All adapters of {slug}
        </Anchor>
      </Empty>
    </Panel>
  );
}
