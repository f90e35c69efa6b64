import { Anchor, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, Route, Switch } from "wouter";

import { Empty } from "@/components/feedback/empty";
import { OverviewPage } from "@/features/overview/overview-page";
import { RequireSession } from "@/features/session/require-session";
import { SignInPage } from "@/features/session/sign-in-page";
import { TenantsPage } from "@/features/tenants/tenants-page";

import { cssVariablesResolver, theme } from "./theme";

// Pages that are not the first to be looked at come when they are opened, each with what only it needs.
const EnginePage = lazy(async () => ({ default: (await import("@/features/engine/engine-page")).EnginePage }));
const PlannerPage = lazy(async () => ({ default: (await import("@/features/planner/planner-page")).PlannerPage }));
const TenantPage = lazy(async () => ({ default: (await import("@/features/tenants/detail/tenant-page")).TenantPage }));
const KeyPage = lazy(async () => ({ default: (await import("@/features/keys/detail/key-page")).KeyPage }));
const AdapterPage = lazy(async () => ({ default: (await import("@/features/adapters/detail/adapter-page")).AdapterPage }));
const VersionPage = lazy(async () => ({ default: (await import("@/features/adapters/version/version-page")).VersionPage }));
const UploadPage = lazy(async () => ({ default: (await import("@/features/adapters/upload/upload-page")).UploadPage }));
const UsagePage = lazy(async () => ({ default: (await import("@/features/usage/usage-page")).UsagePage }));
const PlansPage = lazy(async () => ({ default: (await import("@/features/plans/plans-page")).PlansPage }));
const PlanPage = lazy(async () => ({ default: (await import("@/features/plans/plan-page")).PlanPage }));
const JobsPage = lazy(async () => ({ default: (await import("@/features/jobs/jobs-page")).JobsPage }));
const AuditPage = lazy(async () => ({ default: (await import("@/features/audit/audit-page")).AuditPage }));

export function App({ queryClient }: { queryClient: QueryClient }) {
  return (
    <MantineProvider theme={theme} cssVariablesResolver={cssVariablesResolver} defaultColorScheme="auto">
      <QueryClientProvider client={queryClient}>
        <Notifications position="top-right" />
        <Pages />
      </QueryClientProvider>
    </MantineProvider>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/sign-in" component={SignInPage} />
      <Route>
        <RequireSession>
          <Suspense>
            <PagesOfSession />
          </Suspense>
        </RequireSession>
      </Route>
    </Switch>
  );
}

function PagesOfSession() {
  return (
    <Switch>
      <Route path="/" component={OverviewPage} />
      <Route path="/engine" component={EnginePage} />
      <Route path="/planner" component={PlannerPage} />
      <Route path="/tenants" component={TenantsPage} />
      <Route path="/tenants/:slug/adapters/:name/versions/:number">
        {({ slug, name, number }) => <VersionPage slug={slug} name={name} number={number} />}
      </Route>
      <Route path="/tenants/:slug/adapters/:name">
        {({ slug, name }) => <AdapterPage key={name} slug={slug} name={name} />}
      </Route>
      <Route path="/tenants/:slug/upload">{({ slug }) => <UploadPage slug={slug} />}</Route>
      <Route path="/tenants/:slug/keys/:id">{({ slug, id }) => <KeyPage key={id} slug={slug} id={id} />}</Route>
      <Route path="/tenants/:slug/:tab?">{({ slug, tab }) => <TenantPage slug={slug} tab={tab} />}</Route>
      <Route path="/usage" component={UsagePage} />
      <Route path="/plans" component={PlansPage} />
      <Route path="/plans/:id">{({ id }) => <PlanPage key={id} id={id} />}</Route>
      <Route path="/jobs" component={JobsPage} />
      <Route path="/audit" component={AuditPage} />
      <Route component={NoSuchPage} />
    </Switch>
  );
}

function NoSuchPage() {
  return (
    <Empty title="There is no such page">
      <Anchor component={Link} to="/" fz="sm">
        Overview
      </Anchor>
    </Empty>
  );
}
