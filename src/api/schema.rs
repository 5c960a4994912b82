//! The schemas of all types, under the names that they have in the OpenAPI document.

use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::page::ListPage;
use crate::values::{ExplanationShape, ImageShape, UserShape};
use crate::{
    allowances, announcements, approvals, apps, audit, branding, break_glass, budgets,
    certificates, code_runs, commits, courses, environments, events, fair_share, folder_browsing,
    folder_snapshots, folders, gpus, history, holidays, idle_rules, images, invitations, mail,
    nodes, notices, operations, policies, presets, problem, queue_rehearsal, reservations,
    resource_groups, rosters, second_factor, sessions, settings, sign_ups, ssh, start_up,
    statements, storage, tenancy, usage, users, volumes, webhooks,
};

type Schemas = Vec<(String, RefOr<Schema>)>;

/// Gives every schema by its name, those that others refer to included.
pub fn all() -> Map<String, Value> {
    named()
        .into_iter()
        .map(|(name, schema)| (name, written(&schema)))
        .collect()
}

fn written(schema: &RefOr<Schema>) -> Value {
    serde_json::to_value(schema).unwrap_or(Value::Null)
}

fn named() -> Schemas {
    let mut all = Schemas::new();
    pages(&mut all);
    collect::<sessions::LaunchRequest>(&mut all);
    collect::<sessions::SessionPatchBody>(&mut all);
    collect::<sessions::StopBody>(&mut all);
    collect::<commits::CommitRequest>(&mut all);
    collect::<commits::CommitPreview>(&mut all);
    collect::<code_runs::CodeRunRequest>(&mut all);
    collect::<code_runs::CodeRun>(&mut all);
    collect::<ExplanationShape>(&mut all);
    collect::<gpus::Gpus>(&mut all);
    collect::<history::History>(&mut all);
    collect::<events::EventSearchPage>(&mut all);
    collect::<nodes::NodeDetail>(&mut all);
    collect::<nodes::MaintenanceBody>(&mut all);
    collect::<settings::SettingBody>(&mut all);
    collect::<settings::SettingChange>(&mut all);
    collect::<settings::SignInSourceTrials>(&mut all);
    collect::<gpus::CordonRequest>(&mut all);
    collect::<gpus::DrainRequest>(&mut all);
    collect::<gpus::PartitionRequest>(&mut all);
    collect::<gpus::TestRequest>(&mut all);
    collect::<gpus::Drained>(&mut all);
    collect::<gpus::Repartitioned>(&mut all);
    collect::<gpus::SelfTestReport>(&mut all);
    collect::<environments::EnvironmentImportBody>(&mut all);
    collect::<environments::EnvironmentDetailView>(&mut all);
    collect::<images::ImportBody>(&mut all);
    collect::<images::ImagePullBody>(&mut all);
    collect::<images::NewImageLimitsBody>(&mut all);
    collect::<users::NewUserBody>(&mut all);
    collect::<users::UserPatchBody>(&mut all);
    collect::<users::NewPasswordBody>(&mut all);
    collect::<users::SuspendBody>(&mut all);
    collect::<users::DepartureBody>(&mut all);
    collect::<users::DepartureView>(&mut all);
    collect::<users::FolderHandOverBody>(&mut all);
    collect::<users::UserPreferences>(&mut all);
    collect::<users::NewSignInLinkBody>(&mut all);
    collect::<users::SignInLinkView>(&mut all);
    collect::<users::MadeSignInLink>(&mut all);
    collect::<users::PasswordChangeBody>(&mut all);
    collect::<users::NewTokenBody>(&mut all);
    collect::<second_factor::SecondFactorView>(&mut all);
    collect::<second_factor::SecondFactorCredentialsBody>(&mut all);
    collect::<second_factor::SecondFactorOffer>(&mut all);
    collect::<second_factor::SecondFactorConfirmBody>(&mut all);
    collect::<second_factor::RecoveryCodes>(&mut all);
    collect::<tenancy::NewDomainBody>(&mut all);
    collect::<tenancy::DomainPatchBody>(&mut all);
    collect::<tenancy::NewProjectBody>(&mut all);
    collect::<tenancy::ProjectPatchBody>(&mut all);
    collect::<tenancy::MemberBody>(&mut all);
    collect::<tenancy::GrantBody>(&mut all);
    collect::<policies::NewPolicyBody>(&mut all);
    collect::<policies::PolicyPatchBody>(&mut all);
    collect::<policies::PolicyPreviewView>(&mut all);
    collect::<policies::PolicyUseBody>(&mut all);
    collect::<allowances::NewAllowanceBody>(&mut all);
    collect::<allowances::NewLimitRequestBody>(&mut all);
    collect::<allowances::LimitRequestDeclineBody>(&mut all);
    collect::<usage::Usage>(&mut all);
    collect::<fair_share::FairShareView>(&mut all);
    collect::<queue_rehearsal::QueueRehearsal>(&mut all);
    collect::<fair_share::FairSharePatchBody>(&mut all);
    collect::<fair_share::FairWeightBody>(&mut all);
    collect::<budgets::NewBudgetBody>(&mut all);
    collect::<budgets::BudgetPatchBody>(&mut all);
    collect::<apps::OpenedApp>(&mut all);
    collect::<apps::NewAppShareBody>(&mut all);
    collect::<folders::NewFolderBody>(&mut all);
    collect::<folders::FolderPatchBody>(&mut all);
    collect::<folders::FolderLimitBody>(&mut all);
    collect::<folders::FolderAdoptionBody>(&mut all);
    collect::<folders::FolderDetachmentBody>(&mut all);
    collect::<storage::PoolView>(&mut all);
    collect::<storage::PoolSizeBody>(&mut all);
    collect::<folders::NewFolderCopyBody>(&mut all);
    collect::<folders::NewFolderTransferBody>(&mut all);
    collect::<folders::NewFolderDirectoryBody>(&mut all);
    collect::<folders::FolderChecksumView>(&mut all);
    collect::<folders::FolderMoveBody>(&mut all);
    collect::<folders::FolderSelectionBody>(&mut all);
    collect::<folders::FolderRemovalBody>(&mut all);
    collect::<folders::RemovedEntriesBody>(&mut all);
    collect::<folders::NewFolderShareBody>(&mut all);
    collect::<folder_browsing::FolderSearchView>(&mut all);
    collect::<folder_browsing::FolderUsageView>(&mut all);
    collect::<folder_browsing::FolderTextView>(&mut all);
    collect::<folder_browsing::WrittenFolderTextView>(&mut all);
    collect::<folder_browsing::NewFolderTextBody>(&mut all);
    collect::<folder_browsing::FolderCopyBody>(&mut all);
    collect::<folder_snapshots::FolderSnapshotsView>(&mut all);
    collect::<folder_snapshots::FolderSnapshotScheduleBody>(&mut all);
    collect::<folder_snapshots::FolderSnapshotScheduleView>(&mut all);
    collect::<folder_snapshots::NewFolderFromSnapshotBody>(&mut all);
    collect::<folder_snapshots::FolderSnapshotRestoreBody>(&mut all);
    collect::<presets::NewPresetBody>(&mut all);
    collect::<presets::PresetPatchBody>(&mut all);
    collect::<courses::NewCourseBody>(&mut all);
    collect::<courses::CourseSlotBody>(&mut all);
    collect::<courses::CourseHandOutBody>(&mut all);
    collect::<courses::CoursePatchBody>(&mut all);
    collect::<courses::CourseStartBody>(&mut all);
    collect::<courses::CourseStopBody>(&mut all);
    collect::<courses::CourseExtensionBody>(&mut all);
    collect::<courses::CourseMessageBody>(&mut all);
    collect::<courses::CourseActView>(&mut all);
    collect::<resource_groups::NewResourceGroupBody>(&mut all);
    collect::<resource_groups::ResourceGroupPatchBody>(&mut all);
    collect::<resource_groups::GroupNodesBody>(&mut all);
    collect::<resource_groups::GroupAccessBody>(&mut all);
    collect::<resource_groups::GroupWindowsBody>(&mut all);
    collect::<reservations::NewReservationBody>(&mut all);
    collect::<reservations::ReservationPatchBody>(&mut all);
    collect::<reservations::ReservationApprovalBody>(&mut all);
    collect::<reservations::ReservationRefusalBody>(&mut all);
    collect::<reservations::ReservationQuotaView>(&mut all);
    collect::<reservations::ReservationQuotaBody>(&mut all);
    collect::<idle_rules::NewIdleRuleBody>(&mut all);
    collect::<idle_rules::IdleRulePatchBody>(&mut all);
    collect::<idle_rules::IdleDryRunView>(&mut all);
    collect::<idle_rules::SessionIdleView>(&mut all);
    collect::<volumes::NewVolumeBody>(&mut all);
    collect::<volumes::VolumePatchBody>(&mut all);
    collect::<announcements::NewAnnouncementBody>(&mut all);
    collect::<announcements::AnnouncementPatchBody>(&mut all);
    collect::<holidays::HolidaysBody>(&mut all);
    collect::<branding::BrandingView>(&mut all);
    collect::<branding::BrandingPatchBody>(&mut all);
    collect::<break_glass::BreakGlassBody>(&mut all);
    collect::<approvals::FourEyesBody>(&mut all);
    collect::<mail::MailChoicesView>(&mut all);
    collect::<mail::MailChoicesBody>(&mut all);
    collect::<mail::MailStatusView>(&mut all);
    collect::<mail::MailTestBody>(&mut all);
    collect::<mail::MailTrial>(&mut all);
    collect::<webhooks::MadeWebhook>(&mut all);
    collect::<webhooks::NewWebhookBody>(&mut all);
    collect::<webhooks::WebhookPatchBody>(&mut all);
    collect::<webhooks::WebhookTrial>(&mut all);
    collect::<statements::StatementView>(&mut all);
    collect::<statements::NewClosedMonthBody>(&mut all);
    collect::<statements::PricesView>(&mut all);
    collect::<statements::NewPricesBody>(&mut all);
    collect::<audit::AuditSearchPage>(&mut all);
    collect::<invitations::NewInvitationBody>(&mut all);
    collect::<invitations::MadeInvitation>(&mut all);
    collect::<invitations::InvitationCodeBody>(&mut all);
    collect::<sign_ups::SignUpApprovalBody>(&mut all);
    collect::<sign_ups::SignUpRuleBody>(&mut all);
    collect::<users::MadeToken>(&mut all);
    collect::<users::MadeAccessKey>(&mut all);
    collect::<ssh::NewSshKeyBody>(&mut all);
    collect::<ssh::SshServerView>(&mut all);
    collect::<start_up::NewDotfileBody>(&mut all);
    collect::<start_up::DotfileContentView>(&mut all);
    collect::<start_up::StartupScriptView>(&mut all);
    collect::<start_up::NewStartupScriptBody>(&mut all);
    collect::<start_up::NewVariableBody>(&mut all);
    collect::<users::SignInBody>(&mut all);
    collect::<users::SetupBody>(&mut all);
    collect::<users::SignedIn>(&mut all);
    collect::<certificates::CertificateAuthority>(&mut all);
    collect::<certificates::CertificateStatus>(&mut all);
    collect::<certificates::CertificateRequestInput>(&mut all);
    collect::<certificates::CertificateUpload>(&mut all);
    collect::<certificates::ResetRequest>(&mut all);
    collect::<rosters::RosterPlan>(&mut all);
    collect::<rosters::AppliedRoster>(&mut all);
    collect::<rosters::RosterSuspension>(&mut all);
    collect::<problem::ProblemBody>(&mut all);
    all
}

/// Lists and what is in them.
fn pages(all: &mut Schemas) {
    page::<sessions::SessionView>(all);
    page::<sessions::WaitingView>(all);
    page::<sessions::UsageSample>(all);
    page::<sessions::ConnectionView>(all);
    page::<events::EventView>(all);
    page::<nodes::NodeView>(all);
    page::<notices::NoticeView>(all);
    page::<settings::SettingView>(all);
    page::<ImageShape>(all);
    page::<environments::EnvironmentView>(all);
    page::<images::UploadView>(all);
    page::<operations::OperationView>(all);
    page::<UserShape>(all);
    page::<users::TokenView>(all);
    page::<users::AccessKeyView>(all);
    page::<ssh::SshKeyView>(all);
    page::<start_up::DotfileView>(all);
    page::<start_up::OwnVariableView>(all);
    page::<users::SignInView>(all);
    page::<tenancy::DomainView>(all);
    page::<tenancy::ProjectView>(all);
    page::<tenancy::MemberView>(all);
    page::<tenancy::GrantView>(all);
    page::<rosters::RosterView>(all);
    page::<policies::PolicyView>(all);
    page::<policies::EffectiveLimitView>(all);
    page::<allowances::AllowanceView>(all);
    page::<allowances::LimitRequestView>(all);
    page::<budgets::BudgetView>(all);
    page::<apps::AppView>(all);
    page::<apps::AppShareView>(all);
    page::<folders::FolderView>(all);
    page::<folders::FolderEntryView>(all);
    page::<folders::RemovedEntryView>(all);
    page::<folders::FolderUploadView>(all);
    page::<folders::FolderShareView>(all);
    page::<folders::FolderSessionView>(all);
    page::<folders::FolderInvitationView>(all);
    page::<folders::FolderTransferView>(all);
    page::<storage::StorageView>(all);
    page::<presets::PresetView>(all);
    page::<courses::CourseView>(all);
    page::<courses::CourseMemberView>(all);
    page::<courses::AttendanceView>(all);
    page::<resource_groups::ResourceGroupView>(all);
    page::<reservations::ReservationView>(all);
    page::<volumes::VolumeView>(all);
    page::<announcements::AnnouncementView>(all);
    page::<holidays::HolidayCalendarView>(all);
    page::<idle_rules::IdleRuleView>(all);
    page::<audit::AuditCheckpointView>(all);
    page::<statements::ClosedMonthView>(all);
    page::<statements::MonthCheckView>(all);
    page::<audit::AuditTargetView>(all);
    page::<invitations::InvitationView>(all);
    page::<break_glass::BreakGlassView>(all);
    page::<approvals::ApprovalView>(all);
    page::<sign_ups::SignUpView>(all);
    page::<sign_ups::SignUpRuleView>(all);
    page::<webhooks::WebhookView>(all);
}

/// Adds a list of a type as `SessionPage`, and the type.
fn page<T: ToSchema + PartialSchema>(all: &mut Schemas) {
    let name = format!("{}Page", T::name());
    all.push((name, ListPage::<T>::schema()));
    collect::<T>(all);
}

/// Adds a type and everything inside it.
fn collect<T: ToSchema + PartialSchema>(all: &mut Schemas) {
    all.push((T::name().into_owned(), T::schema()));
    T::schemas(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_of_one_schema() {
        let mut known: Map<String, Value> = Map::new();
        for (name, schema) in named() {
            let schema = written(&schema);
            if let Some(other) = known.insert(name.clone(), schema.clone()) {
                assert_eq!(other, schema, "two types are called {name}");
            }
        }
        assert!(known.len() > 50);
    }
}
