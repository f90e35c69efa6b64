import { Group, Stack, Text } from "@mantine/core";

import { asApiError } from "@/api/errors";
import type { Adapter, Version } from "@/api/types";
import { QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { dateTime } from "@/format/time";
import { useOverview } from "@/features/overview/use-overview";

import { adapterAddress, tenantAddress } from "../addresses";
import { AliasBadges } from "../alias-badges";
import { NoSuchAdapter } from "../detail/adapter-page";
import { VersionButtons } from "../lifecycle/version-steps";
import { residence } from "../residency";
import { ResidencyBadge } from "../residency-badge";
import { StateBadge } from "../state-badge";
import { useAdapter } from "../use-adapters";
import { CertificatePanel } from "./certificate-panel";
import { ConfigPanel } from "./config-panel";
import { FilesPanel } from "./files-panel";
import { ReportPanel } from "./report-panel";
import { ShapePanel } from "./shape-panel";

interface VersionPageProps {
  slug: string;
  name: string;
  /** As it stands in the address. */
  number: string;
}

/** One version: what was asked, what was found, what was measured, and the files that it is made of. */
export function VersionPage({ slug, name, number }: VersionPageProps) {
  const query = useAdapter(slug, name);
  const version = query.data?.versions.find((each) => String(each.number) === number);
  const isMissing = query.data !== undefined ? version === undefined : asApiError(query.error).status === 404;
  return (
    <Page
      title={`${name}:${number}`}
      testId="version"
      trail={[
        { label: "Tenants", to: "/tenants" },
        { label: slug, to: tenantAddress(slug) },
        { label: name, to: adapterAddress(slug, name) },
      ]}
      subtitle={query.data && version && <Standing slug={slug} adapter={query.data} version={version} />}
      actions={query.data && version && <VersionButtons slug={slug} version={version} aliases={query.data.aliases} />}
    >
      {isMissing ? (
        <NoSuchAdapter slug={slug} name={`${name}:${number}`} />
      ) : (
        <QueryState query={query}>
          {(adapter) => version && <Panels slug={slug} adapter={adapter} version={version} />}
        </QueryState>
      )}
    </Page>
  );
}

function Standing({ slug, adapter, version }: { slug: string; adapter: Adapter; version: Version }) {
  const engine = useOverview().data?.latest.engine;
  return (
    <Stack gap={4}>
      <Group gap={8}>
        <StateBadge version={version} />
        {version.state === "ready" && <ResidencyBadge at={residence(engine, slug, version)} />}
        <AliasBadges number={version.number} aliases={adapter.aliases} />
        <Text span fz="sm" c="dimmed" style={{ overflowWrap: "anywhere" }}>
          {dateTime(version.created_at)} by {version.created_by}
        </Text>
      </Group>
      {version.description !== null && <Text fz="sm">{version.description}</Text>}
    </Stack>
  );
}

function Panels({ slug, adapter, version }: { slug: string; adapter: Adapter; version: Version }) {
  const { certificate } = version;
  return (
    <Stack gap="md">
      <ReportPanel version={version} aliases={adapter.aliases} />
      {certificate !== null && (
        <>
          <CertificatePanel certificate={certificate} />
          <ShapePanel certificate={certificate} />
        </>
      )}
      <FilesPanel slug={slug} version={version} />
      {version.config !== null && <ConfigPanel config={version.config} />}
    </Stack>
  );
}
