"""What the migrations it replaces make of an empty database, without their detours."""

import approvals.escalation
import approvals.ids
import approvals.models.choices
import approvals.models.noted
import approvals.sealed
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.comparison
from decimal import Decimal
from django.conf import settings
from django.db import migrations, models

from approvals import append_only


# What follows is no part of the models. The texts and reasons of these indexes are told in 0021 and 0024.
_NO_WORDS = (
    "'run.claimed', 'run.released', 'run.waiting', 'run.succeeded', 'step.recorded', 'tool_call.proposed', "
    "'tool_call.started', 'tool_call.completed', 'approval.used'"
)
_BODY = "replace(replace(left(body, 100000), '\\n', ' '), '\\r', ' ')"
_LATEST = "ON approvals_event (at DESC, id DESC) WHERE"
_COMPLETED = "type = 'tool_call.completed'"
_EDITED = "type IN ('approval.approved', 'approval.changed')"


def _words(name: str, table: str, text: str) -> str:
    return f"CREATE INDEX {name} ON {table} USING gin (to_tsvector('simple', {text}))"


INDEXES = (
    f"{_words('approvals_event_text', 'approvals_event', _BODY)} WHERE NOT (type IN ({_NO_WORDS}))",
    _words("approvals_approval_text", "approvals_approval", "title || ' ' || final_title"),
    f"""CREATE INDEX event_edited {_LATEST} {_EDITED} AND body LIKE '%"type":"edit"%'""",
    f"""CREATE INDEX event_refused {_LATEST} {_COMPLETED} AND body LIKE '%"status":"refused"%'""",
    f"CREATE INDEX event_failed {_LATEST} {_COMPLETED} "
    """AND NOT body LIKE '%"status":"ok"%' AND NOT body LIKE '%"status":"refused"%'""",
    f"CREATE INDEX event_by_token {_LATEST} actor LIKE '% (token %'",
    f"CREATE INDEX event_by_api {_LATEST} actor LIKE '% (api %'",
    _words("approvals_decision_text", "approvals_decision", "message"),
    _words("approvals_question_text", "approvals_question", "text || ' ' || answer"),
    _words("approvals_comment_text", "approvals_comment", "text"),
    _words("approvals_claim_text", "approvals_claim", "note"),
    _words("approvals_judgement_text", "approvals_judgement", "reason"),
)


def index(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for statement in INDEXES:
            schema_editor.execute(statement, None)


def guard(apps, schema_editor):
    append_only.install(schema_editor.connection)


def unguard(apps, schema_editor):
    append_only.remove(schema_editor.connection)


class Migration(migrations.Migration):

    replaces = [('approvals', '0001_initial'), ('approvals', '0002_append_only_events'), ('approvals', '0003_queue'), ('approvals', '0004_excluded'), ('approvals', '0005_confirmations'), ('approvals', '0006_rule_terms'), ('approvals', '0007_rule_versions'), ('approvals', '0008_times'), ('approvals', '0009_grants'), ('approvals', '0010_people'), ('approvals', '0011_mentions_and_steps'), ('approvals', '0012_provenance'), ('approvals', '0013_consent'), ('approvals', '0014_second_look'), ('approvals', '0015_follow_ups'), ('approvals', '0016_assurance'), ('approvals', '0017_plans'), ('approvals', '0018_assurance_of_plans'), ('approvals', '0019_event_links'), ('approvals', '0020_ended'), ('approvals', '0021_event_text'), ('approvals', '0022_proofs'), ('approvals', '0023_salts_and_marks'), ('approvals', '0024_written_text'), ('approvals', '0025_rule_versions_of_requests'), ('approvals', '0026_leaf_begins_once'), ('approvals', '0027_mocked_runs'), ('approvals', '0028_judgements'), ('approvals', '0029_reveal_secret'), ('approvals', '0030_sending_until'), ('approvals', '0031_times_have_an_end'), ('approvals', '0032_editors_lender'), ('approvals', '0033_who_is_excluded'), ('approvals', '0034_plain_words')]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Rule',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.SlugField(help_text='Shown to approvers, for example refunds-over-limit.', max_length=80, unique=True)),
                ('description', models.TextField(blank=True, help_text='Why this rule exists, in words an approver understands.')),
                ('order', models.PositiveIntegerField(default=100, help_text='Of equally strict rules that match, the lowest number gives the reason, and its terms count; of rules that ask, the strictest terms of each.')),
                ('active', models.BooleanField(default=True)),
                ('agent', models.CharField(blank=True, help_text='Name of one agent. Empty means every agent.', max_length=80)),
                ('route', models.CharField(blank=True, help_text='Name of one route. Empty means every route.', max_length=80)),
                ('tool', models.CharField(blank=True, help_text='Exact name of one tool. Empty means every tool.', max_length=120)),
                ('effect_class', models.CharField(blank=True, choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], help_text='Empty means every effect class.', max_length=20)),
                ('environment', models.SlugField(blank=True, help_text='Only if the installation has this name. Empty means everywhere.', max_length=40)),
                ('condition', models.TextField(blank=True, help_text='A CEL expression over args, tool, agent, run, customer, now, environment and history, for example args.amount > 100.0. Empty means always. If it cannot be evaluated, a person is asked.')),
                ('verdict', models.CharField(choices=[('allow', 'Allow: runs without a person'), ('ask', 'Ask: waits for a person'), ('deny', 'Deny: refused, the model is told why')], max_length=10)),
                ('answered_by', models.CharField(choices=[('people', 'People with the right to decide'), ('customer', 'The customer of the conversation')], default='people', help_text='For a rule that asks. If the customer cannot be asked, people are. At high and critical risk, and if another rule asks people, both are asked, the customer first.', max_length=10)),
                ('approvals_needed', models.PositiveSmallIntegerField(default=1, help_text='How many different people must approve.')),
                ('thresholds', models.JSONField(blank=True, default=list, help_text='Ways to decide it, instead of one number, for example [{"approve": 2, "group": "Payments"}, {"approve": 1, "group": "Managers"}]. The first that is reached counts.')),
                ('starter_excluded', models.BooleanField(default=True, help_text='The person who started the run may not decide about its calls.')),
                ('expires_seconds', models.PositiveIntegerField(blank=True, help_text="How long people have. Empty means the installation's default.", null=True, validators=[django.core.validators.MaxValueValidator(315360000, 'At most ten years, which is 315360000 seconds.')])),
                ('on_expiry', models.CharField(choices=[('reject', 'Reject it and tell the agent that no one decided'), ('stop', 'Reject it and stop the run')], default='reject', max_length=10)),
                ('escalation', models.JSONField(blank=True, default=list, help_text='What happens while nobody decides: [{after, group, remind}]. `after` that many seconds another group may decide as well, or those who may decide are reminded, or both.', validators=[approvals.escalation.validate_steps])),
                ('target_seconds', models.PositiveIntegerField(blank=True, help_text="How soon somebody should decide. Empty means the installation's default.", null=True, validators=[django.core.validators.MaxValueValidator(315360000, 'At most ten years, which is 315360000 seconds.')])),
                ('business_hours', models.BooleanField(default=False, help_text='Targets, steps and expiry count only business time, as set in BUSINESS_HOURS.')),
                ('allowed_decisions', models.JSONField(default=approvals.models.choices.every_decision, help_text='Among approve, edit, reject, respond.')),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], default='medium', max_length=10)),
                ('hold_seconds', models.PositiveSmallIntegerField(blank=True, help_text='How long a decision can be undone before it takes effect. 0 runs at once.', null=True)),
                ('assurance', models.CharField(blank=True, choices=[('password', 'A sign-in within the last five minutes'), ('totp', 'A second step within the last five minutes'), ('passkey', 'A passkey, used within the last five minutes'), ('signed', 'A passkey that signs this very decision')], help_text="How people who approve show who they are. Empty: nothing, or the installation's minimum.", max_length=10)),
                ('grants_allowed', models.BooleanField(default=False, help_text='For a rule that asks one person: a grant may answer in their place. Never at critical risk.')),
                ('version', models.PositiveIntegerField(default=1, editable=False, help_text='0: it was never in force; there is only a draft.')),
                ('groups', models.ManyToManyField(blank=True, help_text='Who may decide. Empty means everybody with the right to decide.', to='auth.group')),
            ],
            options={
                'ordering': ['order', 'name'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('verdict', 'allow'), _negated=True), models.Q(('tool', ''), _negated=True), ('effect_class', 'read'), _connector='OR'), name='rule_allow_is_exact', violation_error_message='A rule that allows must name one tool exactly, or cover only reads.'), models.CheckConstraint(condition=models.Q(('approvals_needed__gte', 1)), name='rule_needs_someone', violation_error_message='At least one person must approve.'), models.CheckConstraint(condition=models.Q(('hold_seconds__isnull', True), ('hold_seconds__lte', 60), _connector='OR'), name='rule_hold_is_short', violation_error_message='A decision can be held for at most 60 seconds.'), models.CheckConstraint(condition=models.Q(('version__gte', 1), ('active', False), _connector='OR'), name='rule_draft_decides_nothing', violation_error_message='A rule that was never activated decides nothing.'), models.CheckConstraint(condition=models.Q(('on_expiry__in', ['reject', 'stop'])), name='rule_expiry_never_approves', violation_error_message='A request that nobody decided in time is rejected. It is never approved.'), models.CheckConstraint(condition=models.Q(('target_seconds__isnull', True), ('target_seconds__gte', 1), _connector='OR'), name='rule_target_is_some_time', violation_error_message='A target must be at least one second.'), models.CheckConstraint(condition=models.Q(('grants_allowed', False), models.Q(('answered_by', 'people'), ('approvals_needed', 1), ('verdict', 'ask'), models.Q(('risk', 'critical'), _negated=True)), _connector='OR'), name='rule_grants_for_one_person', violation_error_message='Grants can answer for a rule that asks one person, and not at critical risk.'), models.CheckConstraint(condition=models.Q(('assurance', ''), ('assurance__in', ['password', 'totp', 'passkey', 'signed']), _connector='OR'), name='rule_assurance_is_known', violation_error_message='The assurance must be a known level.'), models.CheckConstraint(condition=models.Q(('grants_allowed', False), ('assurance', ''), _connector='OR'), name='rule_grants_show_nobody', violation_error_message='A grant does not show who approves, so none answers if a rule asks for that.')],
            },
        ),
        migrations.CreateModel(
            name='RuleVersion',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='approvals.rule')),
                ('number', models.PositiveIntegerField(blank=True, help_text='Assigned when it comes into force.', null=True)),
                ('state', models.CharField(choices=[('draft', 'Draft: decides nothing'), ('shadow', 'Shadow: watches every call, decides nothing'), ('in_force', 'In force'), ('retired', 'Was in force')], default='draft', max_length=10)),
                ('origin', models.CharField(choices=[('admin', 'Drafted and activated by people'), ('file', 'Loaded from a configuration file'), ('switch', 'Switched off at once'), ('found', 'In force before versions were kept')], default='admin', max_length=10)),
                ('terms', models.JSONField(help_text='Every column of the rule except its name and number, and the names of its groups.')),
                ('terms_digest', models.CharField(max_length=64)),
                ('restores', models.PositiveIntegerField(blank=True, help_text='The number of the version whose terms it brings back.', null=True)),
                ('editor', models.ForeignKey(blank=True, help_text='Who last changed its terms.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('edited_at', models.DateTimeField()),
                ('simulated_at', models.DateTimeField(blank=True, null=True)),
                ('simulated_digest', models.CharField(blank=True, help_text='The terms that were simulated.', max_length=64)),
                ('simulated_height', models.PositiveBigIntegerField(blank=True, help_text='The height of the configuration that was simulated.', null=True)),
                ('simulation', models.JSONField(blank=True, default=dict, help_text='What would have been different, in numbers.')),
                ('simulated_calls', models.JSONField(blank=True, default=list, help_text='Calls that would have turned out differently, without their arguments.')),
                ('shadowed_at', models.DateTimeField(blank=True, help_text='Since when it watches.', null=True)),
                ('activator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('activated_by', models.CharField(blank=True, help_text='Who did, as the ledger names them.', max_length=200)),
                ('activated_at', models.DateTimeField(blank=True, null=True)),
                ('needed_second_person', models.BooleanField(default=False)),
                ('why', models.TextField(blank=True, help_text='Why it came into force.')),
            ],
            options={
                'ordering': ['rule', '-number'],
                'constraints': [models.UniqueConstraint(fields=('rule', 'number'), name='rule_version_one_per_number', violation_error_message='A rule can have only one version of each number.'), models.UniqueConstraint(condition=models.Q(('state__in', ['draft', 'shadow'])), fields=('rule',), name='rule_version_one_draft', violation_error_message='A rule can have only one draft at a time.'), models.UniqueConstraint(condition=models.Q(('state', 'in_force')), fields=('rule',), name='rule_version_one_in_force', violation_error_message='Only one version of a rule can be in force.'), models.CheckConstraint(condition=models.Q(models.Q(('activated_at__isnull', True), ('number__isnull', True), ('state__in', ['draft', 'shadow'])), models.Q(('activated_at__isnull', False), ('number__isnull', False), ('state__in', ['in_force', 'retired'])), _connector='OR'), name='rule_version_numbered_in_force', violation_error_message='A version has a number and a time once it has come into force, not before.'), models.CheckConstraint(condition=models.Q(models.Q(('origin', 'admin'), _negated=True), ('state__in', ['draft', 'shadow']), models.Q(('simulated_at__isnull', False), ('simulated_digest', models.F('terms_digest'))), _connector='OR'), name='rule_version_was_simulated', violation_error_message='A draft can come into force only after a simulation of exactly its terms.'), models.CheckConstraint(condition=models.Q(('needed_second_person', False), models.Q(('activator__isnull', False), models.Q(('editor__isnull', True), models.Q(('activator', models.F('editor')), _negated=True), _connector='OR')), _connector='OR'), name='rule_version_second_person', violation_error_message='Somebody other than the last editor must activate the rule.'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'shadow'), _negated=True), ('shadowed_at__isnull', False), _connector='OR'), name='rule_version_shadow_since', violation_error_message='A shadow must say since when it watches.')],
            },
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(db_index=True)),
                ('execution_id', models.UUIDField()),
                ('kind', models.CharField(choices=[('authorization', 'Authorization by people'), ('confirmation', 'Confirmation by the customer'), ('plan', 'Authorization of several calls as one plan')], default='authorization', max_length=13)),
                ('agent', models.CharField(max_length=80)),
                ('route', models.CharField(blank=True, max_length=80)),
                ('run_title', models.CharField(blank=True, max_length=200)),
                ('tool', models.CharField(max_length=120)),
                ('tool_version', models.CharField(max_length=64)),
                ('effect_class', models.CharField(choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], max_length=20)),
                ('arguments_text', models.TextField(help_text='The exact text that was proposed, in canonical form.')),
                ('arguments', models.JSONField(default=dict, help_text='For searching only; the text decides.')),
                ('action_digest', models.CharField(max_length=64)),
                ('salt', models.CharField(blank=True, default='', editable=False, help_text='The salt of its call; part of both digests.', max_length=32)),
                ('final_arguments_text', models.TextField(blank=True, help_text='What will run. It differs if a person changed it.')),
                ('final_digest', models.CharField(blank=True, max_length=64)),
                ('final_title', models.CharField(blank=True, max_length=300)),
                ('title', models.CharField(max_length=300)),
                ('sentence', models.JSONField(default=list, help_text='Pieces of the sentence: the text, and whether it is a value.')),
                ('effects', models.JSONField(default=list)),
                ('button', models.CharField(blank=True, help_text='The size of the effect, as on the button.', max_length=60)),
                ('locked_fields', models.JSONField(default=list)),
                ('secret_fields', models.JSONField(default=list)),
                ('pii_fields', models.JSONField(blank=True, default=list)),
                ('evidence', models.JSONField(default=list)),
                ('explanation', models.TextField(blank=True, help_text="The model's words: a claim, not a fact.")),
                ('snapshot_text', models.TextField(blank=True, help_text='The state of the world the decision rests on.')),
                ('preview_text', models.TextField(blank=True, help_text='A dry run of the call, as canonical JSON.')),
                ('plan_text', models.TextField(blank=True, help_text='For a plan: each of its calls as people are shown it, as canonical JSON.')),
                ('final_preview_text', models.TextField(blank=True, help_text='A dry run of the call as a person changed it.')),
                ('difference', models.JSONField(default=list, help_text='What changed since the request this one replaces.')),
                ('view_digest', models.CharField(help_text='Digest of everything shown.', max_length=64)),
                ('rule', models.CharField(blank=True, max_length=80)),
                ('rule_version', models.PositiveIntegerField(default=0, help_text='The version that asked. 0: no rule asked, or it is not known.')),
                ('rule_digest', models.CharField(blank=True, help_text="Digest of that version's terms.", max_length=64)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('condition', models.TextField(blank=True, help_text='What the rule looks at, as it was when this was asked.')),
                ('rule_values', models.JSONField(default=list, help_text='What the rule found there: [{name, value}].')),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], default='medium', max_length=10)),
                ('risk_factors', models.JSONField(default=list, help_text='Why the risk is what it is: [{name, points, words}].')),
                ('provenance', models.JSONField(default=list, help_text='Where each value came from: [{path, origin, source, step, call, ref, quote, part}].')),
                ('second_look', models.JSONField(blank=True, default=dict, help_text='What another model said about it: {verdict, why, model}. A claim; it decides nothing.')),
                ('allowed_decisions', models.JSONField(default=approvals.models.choices.every_decision)),
                ('approvals_needed', models.PositiveSmallIntegerField(default=1)),
                ('terms', models.JSONField(default=list, help_text='Thresholds of each rule that asked. Empty: as many people as `approvals_needed` says.')),
                ('about', models.JSONField(default=dict, help_text='What the conditions of thresholds look at, besides the arguments.')),
                ('starter', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('starter_excluded', models.BooleanField(default=True)),
                ('excluded', models.JSONField(default=list, help_text='Keys of the people who had a hand in the run, for example by taking it over: they decide nothing about its calls.')),
                ('editor', models.ForeignKey(blank=True, help_text="Who changed the model's arguments into these, on the request this one replaces.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('editor_lender', models.ForeignKey(blank=True, db_index=False, help_text='Whose right the editor was lent to do that. None: it was their own.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('assurance_needed', models.CharField(blank=True, choices=[('password', 'A sign-in within the last five minutes'), ('totp', 'A second step within the last five minutes'), ('passkey', 'A passkey, used within the last five minutes'), ('signed', 'A passkey that signs this very decision')], help_text='How people who approve it show who they are.', max_length=10)),
                ('mocked', models.BooleanField(default=False, help_text='Part of a mocked run: nobody is asked or told, and an eval says what is decided.')),
                ('hold_seconds', models.PositiveSmallIntegerField(default=0)),
                ('on_expiry', models.CharField(choices=[('reject', 'Reject it and tell the agent that no one decided'), ('stop', 'Reject it and stop the run')], default='reject', max_length=10)),
                ('state', models.CharField(choices=[('pending', 'Waiting for a decision'), ('asked', 'Waiting for an answer'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('responded', 'Answered by a person'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn'), ('superseded', 'Superseded'), ('used', 'Approved and used')], default='pending', max_length=12)),
                ('version', models.PositiveIntegerField(default=1)),
                ('supersedes', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='approvals.approval')),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, help_text='When it stopped waiting for people.', null=True)),
                ('ended_as', models.CharField(blank=True, choices=[('decided', 'Decided'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn'), ('superseded', 'Superseded')], help_text='How it stopped waiting, whatever happened afterwards.', max_length=10)),
                ('runs_at', models.DateTimeField(blank=True, help_text='The decision can be undone until then.', null=True)),
                ('use_by', models.DateTimeField(blank=True, null=True)),
                ('paused_seconds', models.PositiveIntegerField(default=0, help_text='How long questions have stopped its clock.')),
                ('business_hours', models.BooleanField(default=False, help_text='Its clock counts only business time.')),
                ('expires_seconds', models.PositiveIntegerField(blank=True, help_text='How long its clock runs.', null=True)),
                ('escalation', models.JSONField(blank=True, default=list, help_text="The rule's steps, with their times: [{after, group, group_id, remind, at, taken_at}].")),
                ('escalated', models.PositiveSmallIntegerField(default=0, help_text='How many of these steps have been taken.')),
                ('escalates_at', models.DateTimeField(blank=True, help_text='When the next step is taken.', null=True)),
                ('target_seconds', models.PositiveIntegerField(blank=True, help_text='How long somebody should take to decide, by its clock.', null=True)),
                ('target_at', models.DateTimeField(blank=True, null=True)),
                ('breached_at', models.DateTimeField(blank=True, help_text='When it was found that nobody had decided by the target.', null=True)),
                ('used_at', models.DateTimeField(blank=True, help_text='When the decision took effect.', null=True)),
                ('erased_at', models.DateTimeField(blank=True, help_text='When its words were erased.', null=True)),
                ('erased_by', models.CharField(blank=True, help_text='Who erased them, or that retention did.', max_length=200)),
                ('groups', models.ManyToManyField(blank=True, to='auth.group')),
            ],
            options={
                'ordering': ['-created_at'],
                'permissions': [('decide_approval', 'Can decide approvals'), ('reveal_pii', 'Can see personal data on every page'), ('reveal_secret', 'Can see masked arguments of requests they may decide')],
                'indexes': [models.Index(fields=['state', 'expires_at', 'id'], name='approval_inbox'), models.Index(fields=['state', '-decided_at'], name='approval_decided'), models.Index(fields=['tool', '-created_at'], name='approval_alike'), models.Index(fields=['rule', '-created_at'], name='approval_of_rule'), models.Index(condition=models.Q(('escalates_at__isnull', False), ('state__in', ['pending', 'asked'])), fields=['escalates_at'], name='approval_escalates'), models.Index(condition=models.Q(('breached_at__isnull', True), ('state__in', ['pending', 'asked']), ('target_at__isnull', False)), fields=['target_at'], name='approval_target'), models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at'], name='approval_ended'), models.Index(fields=['created_at'], name='approval_created'), models.Index(condition=models.Q(('breached_at__isnull', False)), fields=['breached_at'], name='approval_breached')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['pending', 'asked', 'approved'])), fields=('execution_id',), name='approval_one_open_per_call', violation_error_message='A call can have at most one open approval.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['approved', 'used']), _negated=True), models.Q(('decided_at__isnull', False), ('runs_at__isnull', False), ('use_by__isnull', False), models.Q(('final_digest', ''), _negated=True)), _connector='OR'), name='approval_approved_is_bound', violation_error_message='An approved request must be bound to exact arguments and a time.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['rejected', 'responded']), _negated=True), models.Q(('decided_at__isnull', False), ('runs_at__isnull', False)), _connector='OR'), name='approval_decided_has_times', violation_error_message='A decided request must say when it was decided and when that takes effect.'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'used'), _negated=True), ('used_at__isnull', False), _connector='OR'), name='approval_used_has_time', violation_error_message='A used approval must say when it was used.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['pending', 'asked']), _negated=True), ('used_at__isnull', True), _connector='OR'), name='approval_pending_is_unused', violation_error_message='A pending request cannot have been used.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['pending', 'asked']), _negated=True), ('ended_at__isnull', True), _connector='OR'), name='approval_waiting_has_not_ended', violation_error_message='A request that waits cannot have ended.'), models.CheckConstraint(condition=models.Q(('on_expiry__in', ['reject', 'stop'])), name='approval_expiry_never_approves', violation_error_message='A request that nobody decided in time is rejected. It is never approved.'), models.CheckConstraint(condition=models.Q(('plan_text', ''), ('kind', 'plan'), _connector='OR'), name='approval_plan_says_so', violation_error_message='Only a plan can have planned calls.'), models.CheckConstraint(condition=models.Q(('breached_at__isnull', True), ('target_at__isnull', False), _connector='OR'), name='approval_breach_has_target', violation_error_message='Only a request with a target can miss it.'), models.CheckConstraint(condition=models.Q(('assurance_needed', ''), models.Q(('assurance_needed__in', ['password', 'totp', 'passkey', 'signed']), models.Q(('kind', 'confirmation'), _negated=True)), _connector='OR'), name='approval_assurance_of_people', violation_error_message='The assurance must be a known level; customers show none.'), models.CheckConstraint(condition=models.Q(models.Q(('risk', 'critical'), _negated=True), ('kind', 'confirmation'), models.Q(('assurance_needed', ''), _negated=True), _connector='OR'), name='approval_critical_asks_assurance', violation_error_message='People who approve a critical request must show who they are.')],
            },
            bases=(approvals.models.noted.Noted, models.Model),
        ),
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='claim', to='approvals.approval')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='claims', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='claims', to='auth.group')),
                ('until', models.DateTimeField(blank=True, help_text='When the lease ends. Empty: it was handed over, and stays.', null=True)),
                ('handed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('note', models.CharField(blank=True, help_text='A note from the person who handed it over.', max_length=300)),
                ('claimed_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['-claimed_at'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('group__isnull', True), ('user__isnull', False)), models.Q(('group__isnull', False), ('user__isnull', True)), _connector='OR'), name='claim_is_somebodys', violation_error_message='A claim must belong to one person or one group.'), models.CheckConstraint(condition=models.Q(('until__isnull', False), ('handed_by__isnull', False), _connector='OR'), name='claim_ends_or_was_handed', violation_error_message='A claim must end, unless the request was handed over.')],
            },
        ),
        migrations.CreateModel(
            name='Snooze',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='snoozes', to='approvals.approval')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='snoozes', to=settings.AUTH_USER_MODEL)),
                ('until', models.DateTimeField()),
            ],
            options={
                'ordering': ['until'],
                'constraints': [models.UniqueConstraint(fields=('approval', 'user'), name='snooze_once_per_person', violation_error_message='A person snoozes a request once.')],
            },
        ),
        migrations.CreateModel(
            name='Viewer',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='viewers', to='approvals.approval')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('doing', models.CharField(choices=[('viewing', 'Viewing'), ('editing', 'Editing'), ('away', 'Away')], default='viewing', max_length=10)),
                ('seen_at', models.DateTimeField()),
                ('shown_at', models.DateTimeField(blank=True, help_text='When the console first showed them the request.', null=True)),
            ],
            options={
                'ordering': ['-seen_at'],
                'constraints': [models.UniqueConstraint(fields=('approval', 'user'), name='viewer_once_per_person', violation_error_message='A person has a request open once.')],
            },
        ),
        migrations.CreateModel(
            name='Absence',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='absence', to=settings.AUTH_USER_MODEL)),
                ('deputy', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deputises_for', to=settings.AUTH_USER_MODEL)),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
            ],
            options={
                'ordering': ['until'],
                'constraints': [models.CheckConstraint(condition=models.Q(('user', models.F('deputy')), _negated=True), name='absence_has_another', violation_error_message='Nobody can stand in for themselves.'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('since'))), name='absence_ends_after_it_begins', violation_error_message='An absence must end after it begins.')],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approval')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('on_behalf_of', models.ForeignKey(blank=True, help_text="Whose right was lent. Empty: it was the person's own.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('customer', models.CharField(blank=True, help_text='The customer who confirmed or declined.', max_length=200)),
                ('mocked', models.BooleanField(default=False, help_text='An eval decided, about a call that reaches nothing.')),
                ('type', models.CharField(choices=[('approve', 'Approve'), ('edit', 'Approve with changes'), ('reject', 'Reject'), ('respond', "Respond in the tool's place")], max_length=10)),
                ('arguments_text', models.TextField(blank=True)),
                ('message', models.TextField(blank=True)),
                ('salt', models.CharField(blank=True, default=approvals.sealed.new_salt, editable=False, help_text="For the ledger's digests of its words.", max_length=32)),
                ('stop_run', models.BooleanField(default=False)),
                ('approval_version', models.PositiveIntegerField()),
                ('action_digest', models.CharField(max_length=64)),
                ('view_digest', models.CharField(max_length=64)),
                ('via', models.CharField(max_length=20)),
                ('assurance', models.CharField(blank=True, choices=[('password', 'A sign-in within the last five minutes'), ('totp', 'A second step within the last five minutes'), ('passkey', 'A passkey, used within the last five minutes'), ('signed', 'A passkey that signs this very decision')], help_text='How the person had just proved who they are.', max_length=20)),
                ('signature', models.JSONField(blank=True, help_text='If signed: {statement, credential_id, authenticator_data, client_data, signature, public_key, rp_id}. Written once.', null=True)),
                ('decided_at', models.DateTimeField()),
                ('undone_at', models.DateTimeField(blank=True, null=True)),
                ('shown_at', models.DateTimeField(blank=True, help_text='When the console first showed them the request. Empty: it did not show it.', null=True)),
                ('claimed_at', models.DateTimeField(blank=True, help_text='When they claimed it. Empty: they had not.', null=True)),
            ],
            options={
                'ordering': ['decided_at'],
                'indexes': [models.Index(fields=['decided_at'], name='decision_latest'), models.Index(condition=models.Q(('undone_at__isnull', False)), fields=['undone_at'], name='decision_undone')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('undone_at__isnull', True)), fields=('approval', 'user'), name='decision_one_per_person', violation_error_message='A person can decide only once about a request.'), models.UniqueConstraint(models.F('approval'), django.db.models.functions.comparison.Coalesce('on_behalf_of', 'user'), condition=models.Q(('undone_at__isnull', True)), name='decision_one_per_right', violation_error_message='A person and the one who decides for them count as one.'), models.CheckConstraint(condition=models.Q(('on_behalf_of__isnull', True), models.Q(('user__isnull', False), models.Q(('user', models.F('on_behalf_of')), _negated=True)), _connector='OR'), name='decision_for_another', violation_error_message="A decision on somebody's behalf must be made by another person."), models.UniqueConstraint(condition=models.Q(('mocked', False), ('undone_at__isnull', True), ('user__isnull', True)), fields=('approval',), name='decision_one_of_customer', violation_error_message='A customer can answer only once.'), models.CheckConstraint(condition=models.Q(models.Q(('customer', ''), ('mocked', False), ('user__isnull', False)), models.Q(('mocked', False), ('user__isnull', True), models.Q(('customer', ''), _negated=True)), models.Q(('assurance', ''), ('customer', ''), ('mocked', True), ('on_behalf_of__isnull', True), ('user__isnull', True)), _connector='OR'), name='decision_has_somebody', violation_error_message="A decision must be a person's, a customer's, or an eval's."), models.CheckConstraint(condition=models.Q(('assurance', ''), models.Q(('assurance__in', ['password', 'totp', 'passkey', 'signed']), ('user__isnull', False)), _connector='OR'), name='decision_assurance_is_known', violation_error_message="A person's assurance must be a known level; a customer has none."), models.CheckConstraint(condition=models.Q(models.Q(('assurance', 'signed'), ('signature__isnull', False), ('type__in', ['approve', 'edit'])), models.Q(models.Q(('assurance', 'signed'), _negated=True), ('signature__isnull', True)), _connector='OR'), name='decision_signed_has_signature', violation_error_message='A signed decision must approve and hold its signature; no other may hold one.')],
            },
        ),
        migrations.CreateModel(
            name='Question',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='questions', to='approvals.approval')),
                ('asker', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('text', models.TextField()),
                ('asked_at', models.DateTimeField()),
                ('answer_by', models.DateTimeField(help_text='When the clock goes on even without an answer.')),
                ('answer', models.TextField(blank=True)),
                ('answerer', models.ForeignKey(blank=True, help_text='The person who answered. Empty: the agent did.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('salt', models.CharField(blank=True, default=approvals.sealed.new_salt, editable=False, help_text="For the ledger's digests of its words.", max_length=32)),
                ('proposed_text', models.TextField(blank=True, help_text='The arguments the agent proposes instead, in canonical form; a new request has them.')),
                ('closed_at', models.DateTimeField(blank=True, help_text='When it was answered or its time was up.', null=True)),
            ],
            options={
                'ordering': ['asked_at'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('closed_at__isnull', True)), fields=('approval',), name='question_one_open_per_approval', violation_error_message='Only one question about a request can be open at a time.'), models.CheckConstraint(condition=models.Q(('answer', ''), ('closed_at__isnull', False), _connector='OR'), name='question_answered_is_closed', violation_error_message='An answered question must be closed.')],
            },
        ),
        migrations.CreateModel(
            name='Event',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('chain', models.CharField(max_length=60)),
                ('seq', models.PositiveIntegerField()),
                ('type', models.CharField(max_length=60)),
                ('run_id', models.UUIDField(blank=True, null=True)),
                ('actor', models.CharField(max_length=200)),
                ('at', models.DateTimeField()),
                ('actor_key', models.CharField(default='', editable=False, max_length=200)),
                ('approval_id', models.UUIDField(blank=True, null=True)),
                ('execution_id', models.UUIDField(blank=True, null=True)),
                ('tool', models.CharField(blank=True, max_length=200)),
                ('risk', models.CharField(blank=True, max_length=10)),
                ('took_ms', models.BigIntegerField(blank=True, null=True)),
                ('body', models.TextField(help_text='The canonical text that was hashed. The other columns repeat parts of it.')),
                ('previous_hash', models.CharField(max_length=64)),
                ('hash', models.CharField(max_length=64)),
            ],
            options={
                'ordering': ['chain', 'seq'],
                'indexes': [models.Index(fields=['-at', '-id'], name='event_latest'), models.Index(fields=['actor_key', '-at', '-id'], name='event_of_actor'), models.Index(fields=['type', '-at', '-id'], name='event_of_type'), models.Index(condition=models.Q(('tool', ''), _negated=True), fields=['tool', '-at', '-id'], name='event_of_tool'), models.Index(condition=models.Q(('risk', ''), _negated=True), fields=['risk', '-at', '-id'], name='event_of_risk'), models.Index(condition=models.Q(('took_ms__isnull', False)), fields=['-at', '-id'], name='event_timed'), models.Index(condition=models.Q(('took_ms__isnull', False)), fields=['took_ms'], name='event_took'), models.Index(condition=models.Q(('took_ms__isnull', False)), fields=['type', 'took_ms'], name='event_took_of_type'), models.Index(condition=models.Q(('approval_id__isnull', False)), fields=['approval_id'], name='event_of_approval'), models.Index(condition=models.Q(('execution_id__isnull', False)), fields=['execution_id'], name='event_of_execution')],
                'constraints': [models.UniqueConstraint(fields=('chain', 'seq'), name='event_one_per_place', violation_error_message='Two events cannot have the same place in a chain.')],
            },
        ),
        migrations.CreateModel(
            name='Grant',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(help_text='The request that it was made from.', on_delete=django.db.models.deletion.PROTECT, related_name='grants', to='approvals.approval')),
                ('tool', models.CharField(max_length=120)),
                ('tool_version', models.CharField(help_text='If the tool changes, the grant is void.', max_length=64)),
                ('effect_class', models.CharField(choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], help_text="If an admin changes the tool's effect class, the grant is void.", max_length=20)),
                ('agent', models.CharField(max_length=80)),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], help_text='A call of higher risk asks.', max_length=10)),
                ('constraints', models.JSONField(default=list, help_text='What each argument may be: [{name, rule: is, at_most or any, value}].')),
                ('reason', models.CharField(max_length=500)),
                ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('made_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('max_hits', models.PositiveIntegerField(blank=True, help_text='How many calls. Empty: no limit.', null=True)),
                ('hits', models.PositiveIntegerField(default=0)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('revoked_why', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['agent', 'expires_at'], name='grant_of_agent')],
                'constraints': [models.CheckConstraint(condition=models.Q(('effect_class__in', ['reversible', 'compensable'])), name='grant_can_be_put_right', violation_error_message='Only calls that can be undone or made good can be granted.'), models.CheckConstraint(condition=models.Q(('risk', 'critical'), _negated=True), name='grant_is_not_critical', violation_error_message='A critical call must be decided each time.'), models.CheckConstraint(condition=models.Q(models.Q(('tool', ''), _negated=True), models.Q(('tool_version', ''), _negated=True), models.Q(('agent', ''), _negated=True), models.Q(('reason', ''), _negated=True)), name='grant_is_exact', violation_error_message='A grant must name one tool, its version, one agent and a reason.'), models.CheckConstraint(condition=models.Q(('expires_at__gt', models.F('made_at'))), name='grant_ends', violation_error_message='A grant must end after it was made.'), models.CheckConstraint(condition=models.Q(('max_hits__isnull', True), models.Q(('hits__lte', models.F('max_hits')), ('max_hits__gte', 1)), _connector='OR'), name='grant_within_its_hits', violation_error_message='A grant cannot allow more calls than it says.'), models.CheckConstraint(condition=models.Q(models.Q(('revoked_at__isnull', True), ('revoked_by__isnull', True), ('revoked_why', '')), models.Q(('revoked_at__isnull', False), ('revoked_by__isnull', False), models.Q(('revoked_why', ''), _negated=True)), _connector='OR'), name='grant_revoked_by_somebody', violation_error_message='A revoked grant must say who revoked it, when and why.')],
            },
        ),
        migrations.CreateModel(
            name='GrantLimit',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('grant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='limits', to='approvals.grant')),
                ('kind', models.CharField(choices=[('sum', 'Sum of an argument'), ('count', 'What the tool counts')], max_length=5)),
                ('name', models.CharField(help_text='The argument, or what the tool counts, for example recipients.', max_length=120)),
                ('most', models.DecimalField(decimal_places=4, max_digits=18)),
                ('used', models.DecimalField(decimal_places=4, default=Decimal('0'), max_digits=18)),
            ],
            options={
                'ordering': ['kind', 'name'],
                'constraints': [models.UniqueConstraint(fields=('grant', 'kind', 'name'), name='grantlimit_one_per_thing', violation_error_message='A grant can limit each thing only once.'), models.CheckConstraint(condition=models.Q(('most__gt', 0), ('used__gte', 0), ('used__lte', models.F('most'))), name='grantlimit_is_kept', violation_error_message='Calls under a grant cannot add up to more than it says.')],
            },
        ),
        migrations.CreateModel(
            name='Judgement',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='judgements', to='approvals.approval')),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='judgements', to='approvals.decision')),
                ('number', models.PositiveIntegerField(help_text='From 1, for each decision. The highest counts.')),
                ('mark', models.CharField(choices=[('good', 'Good'), ('wrong', 'Wrong'), ('harmful', 'Harmful')], max_length=7)),
                ('reason', models.TextField()),
                ('salt', models.CharField(blank=True, default=approvals.sealed.new_salt, editable=False, help_text="For the ledger's digest of its reason.", max_length=32)),
                ('judge', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('event', models.UUIDField(db_index=True, help_text='The event that records the decision.', null=True)),
                ('at', models.DateTimeField()),
            ],
            options={
                'ordering': ['decision', 'number'],
                'permissions': [('judge_decision', 'Can say afterwards whether a decision was good')],
                'constraints': [models.UniqueConstraint(fields=('decision', 'number'), name='judgement_one_counts', violation_error_message='Only one judgement of a decision can be the last.'), models.CheckConstraint(condition=models.Q(('mark__in', ['good', 'wrong', 'harmful'])), name='judgement_mark_is_known', violation_error_message='A decision can be judged good, wrong or harmful.'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='judgement_has_reason', violation_error_message='A judgement must say why.')],
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('lender', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='delegations', to=settings.AUTH_USER_MODEL)),
                ('deputy', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='lent_delegations', to=settings.AUTH_USER_MODEL)),
                ('tools', models.JSONField(blank=True, default=list, help_text='Names of the tools it covers. Empty: every tool.')),
                ('highest_risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], default='high', max_length=10)),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, help_text='When it was ended before its time.', null=True)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('groups', models.ManyToManyField(help_text='The groups whose requests the deputy decides. None chosen: no requests.', to='auth.group')),
            ],
            options={
                'ordering': ['-created_at'],
                'permissions': [('revoke_delegation', 'Can end delegations of others')],
                'indexes': [models.Index(fields=['deputy', 'until'], name='delegation_of_deputy')],
                'constraints': [models.CheckConstraint(condition=models.Q(('lender', models.F('deputy')), _negated=True), name='delegation_has_another', violation_error_message='Nobody can lend a right to themselves.'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('since'))), name='delegation_ends_after_it_begins', violation_error_message='A delegation must end after it begins.'), models.CheckConstraint(condition=models.Q(('highest_risk__in', ['low', 'medium', 'high'])), name='delegation_never_critical', violation_error_message='The right to decide critical requests cannot be lent.')],
            },
        ),
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='comments', to='approvals.approval')),
                ('author', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('text', models.TextField()),
                ('salt', models.CharField(blank=True, default=approvals.sealed.new_salt, editable=False, help_text="For the ledger's digests of its words.", max_length=32)),
                ('at', models.DateTimeField()),
            ],
            options={
                'ordering': ['at', 'id'],
                'constraints': [models.CheckConstraint(condition=models.Q(('text', ''), _negated=True), name='comment_says_something', violation_error_message='A comment cannot be empty.')],
            },
        ),
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.SlugField(max_length=80, unique=True)),
                ('kind', models.CharField(max_length=20)),
                ('config', models.JSONField(blank=True, default=dict, help_text="What the kind needs, for example {'to': ['a@b.example']}.")),
                ('personal', models.BooleanField(default=False, help_text='For individual people: each gives their name there under Settings, Notifications. No group is told.')),
                ('follows_up', models.BooleanField(default=True, help_text='If a message cannot be changed, a second one says what became of its request.', verbose_name='follow-ups')),
                ('active', models.BooleanField(default=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='It is told about requests these groups may decide. Empty means every request.', to='auth.group')),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('active', True), ('personal', True)), fields=('personal',), name='channel_one_for_people', violation_error_message='Only one channel can be for individual people. Switch the other off first.')],
            },
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='approvals.approval')),
                ('kind', models.CharField(choices=[('waiting', 'A request waits'), ('handed', 'A request was handed to me'), ('due_soon', 'A request of mine is due soon'), ('call_failed', 'A call that I approved failed'), ('answered', 'My question was answered'), ('reminded', 'A request still waits'), ('escalated', 'My group may now decide, too'), ('mentioned', 'I was mentioned in a comment'), ('followed', 'What became of a request')], default='waiting', max_length=12)),
                ('channel', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='approvals.channel')),
                ('user', models.ForeignKey(blank=True, help_text='The person told, by mail or over the channel, as their own settings say.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
                ('step', models.PositiveSmallIntegerField(default=0, help_text='The escalation step it belongs to. 0: it belongs to none.')),
                ('comment', models.ForeignKey(blank=True, help_text='The comment that mentions them, if one does.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='approvals.comment')),
                ('follows', models.ForeignKey(blank=True, help_text='The message it changes, or comes after.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='follow_ups', to='approvals.notification')),
                ('outcome', models.CharField(blank=True, choices=[('pending', 'Waiting for a decision'), ('asked', 'Waiting for an answer'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('responded', 'Answered by a person'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn'), ('superseded', 'Superseded'), ('used', 'Approved and used')], help_text='What became of the request, if the message tells that.', max_length=12)),
                ('version', models.PositiveIntegerField(default=0, help_text='The version of the request that had this outcome.')),
                ('receipt', models.CharField(blank=True, help_text='The name by which the receiving service knows the message.', max_length=200)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('sent', 'Sent'), ('failed', 'Failed')], default='queued', max_length=10)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('sending_until', models.DateTimeField(blank=True, help_text='Until then an attempt may be under way, and no other begins.', null=True)),
                ('error', models.TextField(blank=True)),
                ('created_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-created_at'],
                'indexes': [models.Index(fields=['state', 'created_at'], name='notification_queue')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('follows__isnull', True), ('user__isnull', True)), fields=('approval', 'channel', 'step'), name='notification_once_per_channel', violation_error_message='A channel is told about a request once, and once about each step.'), models.UniqueConstraint(condition=models.Q(('channel__isnull', True), ('comment__isnull', True), ('follows__isnull', True)), fields=('approval', 'user', 'kind', 'step'), name='notification_once_per_person', violation_error_message='A person is mailed about one thing in a request only once.'), models.UniqueConstraint(condition=models.Q(('comment__isnull', True), ('follows__isnull', True)), fields=('approval', 'user', 'channel', 'kind', 'step'), name='notification_once_per_chat', violation_error_message='A person is told about one thing in a request only once over a channel.'), models.UniqueConstraint(condition=models.Q(('channel__isnull', True)), fields=('comment', 'user'), name='notification_once_per_comment', violation_error_message='A person is mailed about a comment only once.'), models.UniqueConstraint(fields=('comment', 'user', 'channel'), name='notification_once_per_comment_chat', violation_error_message='A person is told about a comment only once over a channel.'), models.UniqueConstraint(fields=('follows', 'version'), name='notification_once_per_outcome', violation_error_message='A message is followed only once for each outcome of its request.'), models.CheckConstraint(condition=models.Q(models.Q(('follows__isnull', False), ('kind', 'followed'), models.Q(('outcome', ''), _negated=True)), models.Q(models.Q(('kind', 'followed'), _negated=True), ('follows__isnull', True), ('outcome', '')), _connector='OR'), name='notification_follow_up_has_outcome', violation_error_message='A message that follows another must say what became of the request.'), models.CheckConstraint(condition=models.Q(models.Q(('comment__isnull', False), ('kind', 'mentioned'), ('user__isnull', False)), models.Q(models.Q(('kind', 'mentioned'), _negated=True), ('comment__isnull', True)), _connector='OR'), name='notification_mentions_by_comment', violation_error_message='A mention must name one person, in one comment.'), models.CheckConstraint(condition=models.Q(('channel__isnull', False), ('user__isnull', False), _connector='OR'), name='notification_is_for_somebody', violation_error_message='A notification must have a channel, a person, or both.')],
            },
        ),
        migrations.CreateModel(
            name='Roundup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='roundup', to=settings.AUTH_USER_MODEL)),
                ('period', models.DateTimeField(blank=True, help_text='When the last one was due.', null=True)),
                ('sending_until', models.DateTimeField(blank=True, help_text='Until then a worker is sending it, and no other begins.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PlannedCall',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(help_text='The request for the whole plan.', on_delete=django.db.models.deletion.PROTECT, related_name='planned_calls', to='approvals.approval')),
                ('run_id', models.UUIDField(db_index=True)),
                ('position', models.PositiveSmallIntegerField(help_text='Its place in the plan, from 1.')),
                ('tool', models.CharField(max_length=120)),
                ('tool_version', models.CharField(help_text='If the tool changes, people are asked about the call.', max_length=64)),
                ('effect_class', models.CharField(choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], max_length=20)),
                ('arguments_text', models.TextField(help_text='The exact arguments, in canonical form.')),
                ('action_digest', models.CharField(max_length=64)),
                ('snapshot_text', models.TextField(blank=True, help_text='The state of the world that people approved it on.')),
                ('use_by', models.DateTimeField()),
                ('used_by', models.UUIDField(blank=True, help_text='The call that was made under it.', null=True, unique=True)),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('ended_why', models.CharField(blank=True, max_length=500)),
            ],
            options={
                'ordering': ['approval', 'position'],
                'constraints': [models.UniqueConstraint(fields=('approval', 'position'), name='plannedcall_one_per_place', violation_error_message='A plan can have only one call at each place.'), models.CheckConstraint(condition=models.Q(('position__gte', 1), models.Q(('tool', ''), _negated=True), models.Q(('tool_version', ''), _negated=True), models.Q(('action_digest', ''), _negated=True)), name='plannedcall_is_exact', violation_error_message='A planned call must have a place, a tool, its version and a digest.'), models.CheckConstraint(condition=models.Q(('effect_class__in', ['reversible', 'compensable'])), name='plannedcall_can_be_put_right', violation_error_message='Only calls that can be undone or made good can be planned.'), models.CheckConstraint(condition=models.Q(models.Q(('used_at__isnull', True), ('used_by__isnull', True)), models.Q(('used_at__isnull', False), ('used_by__isnull', False)), _connector='OR'), name='plannedcall_used_has_time', violation_error_message='A planned call that was made must say by which call, and when.'), models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('ended_why', '')), models.Q(('ended_at__isnull', False), models.Q(('ended_why', ''), _negated=True)), _connector='OR'), name='plannedcall_ended_says_why', violation_error_message='A planned call that was ended must say when and why.'), models.CheckConstraint(condition=models.Q(('used_at__isnull', True), ('ended_at__isnull', True), _connector='OR'), name='plannedcall_used_or_ended', violation_error_message='A planned call cannot be both made and ended.')],
            },
        ),
        migrations.CreateModel(
            name='ChainHead',
            fields=[
                ('chain', models.CharField(max_length=60, primary_key=True, serialize=False)),
                ('seq', models.PositiveIntegerField()),
                ('hash', models.CharField(max_length=64)),
                ('covered_seq', models.PositiveIntegerField(default=0, help_text='The last event that a checkpoint covers.')),
                ('uncovered', models.BooleanField(default=True, help_text='Whether there are events that no checkpoint covers.')),
            ],
            options={
                'ordering': ['chain'],
                'indexes': [models.Index(condition=models.Q(('uncovered', True)), fields=['chain'], name='chainhead_uncovered')],
            },
        ),
        migrations.CreateModel(
            name='LedgerKey',
            fields=[
                ('key_id', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('public_key', models.CharField(max_length=44)),
                ('number', models.PositiveIntegerField(unique=True)),
                ('statement', models.TextField(help_text='That this key follows the one before, as canonical JSON.')),
                ('signature', models.CharField(help_text='Of the statement, by this key.', max_length=88)),
                ('endorsement', models.CharField(blank=True, help_text='The same by the key before, if it was available.', max_length=88)),
                ('introduced_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('number', models.PositiveBigIntegerField(primary_key=True, serialize=False)),
                ('statement', models.TextField(help_text='What was signed, as canonical JSON. The other columns repeat parts of it.')),
                ('digest', models.CharField(help_text='Of the statement; the next one names it.', max_length=64)),
                ('key_id', models.CharField(max_length=64)),
                ('signature', models.CharField(max_length=88)),
                ('events', models.PositiveBigIntegerField(help_text='How many events are covered since the first checkpoint.')),
                ('made_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.CreateModel(
            name='CheckpointLeaf',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('checkpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='leaves', to='approvals.checkpoint')),
                ('position', models.PositiveIntegerField()),
                ('chain', models.CharField(max_length=60)),
                ('first', models.PositiveIntegerField()),
                ('last', models.PositiveIntegerField()),
                ('hash', models.CharField(help_text='Of the last event.', max_length=64)),
                ('root', models.CharField(help_text='Of the tree over the hashes of these events.', max_length=64)),
            ],
            options={
                'ordering': ['checkpoint', 'position'],
                'constraints': [models.UniqueConstraint(fields=('checkpoint', 'position'), name='leaf_one_per_position'), models.UniqueConstraint(fields=('chain', 'first'), name='leaf_begins_once'), models.UniqueConstraint(fields=('chain', 'last'), name='leaf_one_per_event')],
            },
        ),
        migrations.CreateModel(
            name='Anchor',
            fields=[
                ('target', models.CharField(choices=[('file', 'File'), ('url', 'Address')], max_length=4, primary_key=True, serialize=False)),
                ('reached', models.PositiveBigIntegerField(default=0)),
                ('reached_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Failed attempts in a row.')),
                ('next_at', models.DateTimeField(blank=True, help_text='It is not tried again before then.', null=True)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('problem', models.CharField(blank=True, max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name='Verification',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('running', 'Running'), ('done', 'Done')], default='running', max_length=7)),
                ('chain', models.CharField(blank=True, help_text='Only this chain. Empty: every one.', max_length=60)),
                ('since', models.DateTimeField(blank=True, help_text='Only chains in which something has happened since then.', null=True)),
                ('until', models.DateTimeField(blank=True, help_text='And before then.', null=True)),
                ('started_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('started_at', models.DateTimeField()),
                ('seen_at', models.DateTimeField(help_text='When a worker last reported its progress.')),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('cursor', models.JSONField(blank=True, default=dict, help_text='Where to go on.')),
                ('events_total', models.PositiveBigIntegerField(default=0, help_text='Roughly how many events there are to look at.')),
                ('events', models.PositiveBigIntegerField(default=0, help_text='How many hold.')),
                ('checkpoints', models.PositiveBigIntegerField(default=0, help_text='How many hold.')),
                ('signed', models.PositiveBigIntegerField(default=0, help_text='How many signed decisions hold.')),
                ('holds', models.BooleanField(blank=True, null=True)),
                ('broken', models.JSONField(blank=True, help_text='The first one that does not hold, with its neighbours.', null=True)),
            ],
            options={
                'ordering': ['-started_at'],
                'indexes': [models.Index(fields=['state', '-started_at'], name='verification_latest')],
            },
        ),
        migrations.RunPython(index, migrations.RunPython.noop),
        migrations.RunPython(guard, unguard),
    ]
