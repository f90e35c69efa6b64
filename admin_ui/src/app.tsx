import { Anchor, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider, type QueryClient } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, Route, Switch } from "wouter";

import { Empty } from "@/components/feedback/empty";
import { AdapterPage } from "@/features/adapters/detail/adapter-page";
import { VersionPage } from "@/features/adapters/version/version-page";
import { AuditPage } from "@/features/audit/audit-page";
import { JobsPage } from "@/features/jobs/jobs-page";
import { KeyPage } from "@/features/keys/detail/key-page";
import { OverviewPage } from "@/features/overview/overview-page";
import { PlanPage } from "@/features/plans/plan-page";
import { PlansPage } from "@/features/plans/plans-page";
import { RequireSession } from "@/features/session/require-session";
import { SignInPage } from "@/features/session/sign-in-page";
import { TenantPage } from "@/features/tenants/detail/tenant-page";
import { TenantsPage } from "@/features/tenants/tenants-page";
import { UsagePage } from "@/features/usage/usage-page";

import { cssVariablesResolver, theme } from "./theme";

// With what it sends and hashes files by, which nobody needs who only looks.
const UploadPage = lazy(async () => ({ default: (await import("@/features/adapters/upload/upload-page")).UploadPage }));

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
          <Switch>
            <Route path="/" component={OverviewPage} />
            <Route path="/tenants" component={TenantsPage} />
            <Route path="/tenants/:slug/adapters/:name/versions/:number">
              {({ slug, name, number }) => <VersionPage slug={slug} name={name} number={number} />}
            </Route>
            <Route path="/tenants/:slug/adapters/:name">
              {({ slug, name }) => <AdapterPage key={name} slug={slug} name={name} />}
            </Route>
            <Route path="/tenants/:slug/upload">
              {({ slug }) => (
                <Suspense>
                  <UploadPage slug={slug} />
                </Suspense>
              )}
            </Route>
            <Route path="/tenants/:slug/keys/:id">{({ slug, id }) => <KeyPage key={id} slug={slug} id={id} />}</Route>
            <Route path="/tenants/:slug/:tab?">{({ slug, tab }) => <TenantPage slug={slug} tab={tab} />}</Route>
            <Route path="/usage" component={UsagePage} />
            <Route path="/plans" component={PlansPage} />
            <Route path="/plans/:id">{({ id }) => <PlanPage key={id} id={id} />}</Route>
            <Route path="/jobs" component={JobsPage} />
            <Route path="/audit" component={AuditPage} />
            <Route component={NoSuchPage} />
          </Switch>
        </RequireSession>
      </Route>
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
