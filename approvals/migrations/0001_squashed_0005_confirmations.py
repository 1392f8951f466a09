import approvals.ids
import approvals.models.choices
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from approvals import append_only


def install(apps, schema_editor):
    append_only.install(schema_editor.connection)


def remove(apps, schema_editor):
    append_only.remove(schema_editor.connection)


class Migration(migrations.Migration):

    replaces = [('approvals', '0001_initial'), ('approvals', '0002_append_only_events'), ('approvals', '0003_queue'), ('approvals', '0004_excluded'), ('approvals', '0005_confirmations')]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Rule',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.SlugField(help_text='Shown to approvers, as in refunds-over-limit.', max_length=80, unique=True)),
                ('description', models.TextField(blank=True, help_text='Why this rule exists, in words an approver understands.')),
                ('order', models.PositiveIntegerField(default=100, help_text='Among equally strict rules that match, the lowest number names the terms.')),
                ('active', models.BooleanField(default=True)),
                ('agent', models.CharField(blank=True, help_text='Name of one agent. Empty means every agent.', max_length=80)),
                ('route', models.CharField(blank=True, help_text='Name of one route. Empty means every route.', max_length=80)),
                ('tool', models.CharField(blank=True, help_text='Exact name of one tool. Empty means every tool.', max_length=120)),
                ('effect_class', models.CharField(blank=True, choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], help_text='Empty means every effect class.', max_length=20)),
                ('condition', models.TextField(blank=True, help_text='A CEL expression over args, tool, agent, run and customer, as in args.amount > 100.0. Empty means always. One that fails to evaluate asks a person.')),
                ('verdict', models.CharField(choices=[('allow', 'Allow: runs without a person'), ('ask', 'Ask: waits for a person'), ('deny', 'Deny: refused, the model is told why')], max_length=10)),
                ('answered_by', models.CharField(choices=[('people', 'People with the right to decide'), ('customer', 'The customer of the conversation')], default='people', help_text='Of a rule that asks. Where the customer cannot be asked, people are; at high and critical risk, and where another rule asks people, both are, the customer first.', max_length=10)),
                ('approvals_needed', models.PositiveSmallIntegerField(default=1, help_text='How many different people must approve.')),
                ('starter_excluded', models.BooleanField(default=True, help_text='The person who started the run may not decide about its calls.')),
                ('expires_seconds', models.PositiveIntegerField(blank=True, help_text="How long people have. Empty means the installation's default.", null=True)),
                ('on_expiry', models.CharField(choices=[('reject', 'Reject it and tell the agent that no one decided'), ('stop', 'Reject it and stop the run')], default='reject', max_length=10)),
                ('allowed_decisions', models.JSONField(default=approvals.models.choices.every_decision, help_text='Among approve, edit, reject, respond.')),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], default='medium', max_length=10)),
                ('hold_seconds', models.PositiveSmallIntegerField(blank=True, help_text='How long a decision can be undone before it takes effect. 0 runs at once.', null=True)),
                ('version', models.PositiveIntegerField(default=1, editable=False)),
                ('groups', models.ManyToManyField(blank=True, help_text='Who may decide. Empty means everybody with the right to decide.', to='auth.group')),
            ],
            options={
                'ordering': ['order', 'name'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('verdict', 'allow'), _negated=True), models.Q(('tool', ''), _negated=True), ('effect_class', 'read'), _connector='OR'), name='rule_allow_is_exact', violation_error_message='A rule that allows must name one tool exactly, or only reads.'), models.CheckConstraint(condition=models.Q(('approvals_needed__gte', 1)), name='rule_needs_someone', violation_error_message='At least one person must approve.'), models.CheckConstraint(condition=models.Q(('hold_seconds__isnull', True), ('hold_seconds__lte', 60), _connector='OR'), name='rule_hold_is_short', violation_error_message='A decision can be held for 60 seconds at most.')],
            },
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField(db_index=True)),
                ('execution_id', models.UUIDField()),
                ('kind', models.CharField(choices=[('authorization', 'Authorization by people'), ('confirmation', 'Confirmation by the customer')], default='authorization', max_length=13)),
                ('agent', models.CharField(max_length=80)),
                ('route', models.CharField(blank=True, max_length=80)),
                ('run_title', models.CharField(blank=True, max_length=200)),
                ('tool', models.CharField(max_length=120)),
                ('tool_version', models.CharField(max_length=64)),
                ('effect_class', models.CharField(choices=[('read', 'Read: changes nothing'), ('reversible', 'Reversible: can be undone exactly'), ('compensable', 'Compensable: can be made good'), ('irreversible', 'Irreversible: cannot be taken back')], max_length=20)),
                ('arguments_text', models.TextField(help_text='The exact text that was proposed, in canonical form.')),
                ('arguments', models.JSONField(default=dict, help_text='For searching only; the text decides.')),
                ('action_digest', models.CharField(max_length=64)),
                ('final_arguments_text', models.TextField(blank=True, help_text='What will run; differs when a person edited.')),
                ('final_digest', models.CharField(blank=True, max_length=64)),
                ('final_title', models.CharField(blank=True, max_length=300)),
                ('title', models.CharField(max_length=300)),
                ('sentence', models.JSONField(default=list, help_text='Pieces of the sentence: text, and whether it is a value.')),
                ('effects', models.JSONField(default=list)),
                ('button', models.CharField(blank=True, help_text='The size of the effect, as on the button.', max_length=60)),
                ('locked_fields', models.JSONField(default=list)),
                ('secret_fields', models.JSONField(default=list)),
                ('evidence', models.JSONField(default=list)),
                ('explanation', models.TextField(blank=True, help_text="The model's words: a claim, not a fact.")),
                ('snapshot_text', models.TextField(blank=True, help_text='The state of the world the decision rests on.')),
                ('difference', models.JSONField(default=list, help_text='What changed since the request this one replaces.')),
                ('view_digest', models.CharField(help_text='Digest of everything shown.', max_length=64)),
                ('rule', models.CharField(blank=True, max_length=80)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('condition', models.TextField(blank=True, help_text='What the rule looks at, as it stood when this was asked.')),
                ('rule_values', models.JSONField(default=list, help_text='What it found there: [{name, value}].')),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], default='medium', max_length=10)),
                ('allowed_decisions', models.JSONField(default=approvals.models.choices.every_decision)),
                ('approvals_needed', models.PositiveSmallIntegerField(default=1)),
                ('starter', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('starter_excluded', models.BooleanField(default=True)),
                ('excluded', models.JSONField(default=list, help_text='Keys of the people who have taken the run over: they decide nothing about its calls.')),
                ('editor', models.ForeignKey(blank=True, help_text="Who made these arguments of the model's, on the request this one replaces.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('hold_seconds', models.PositiveSmallIntegerField(default=0)),
                ('on_expiry', models.CharField(choices=[('reject', 'Reject it and tell the agent that no one decided'), ('stop', 'Reject it and stop the run')], default='reject', max_length=10)),
                ('state', models.CharField(choices=[('pending', 'Waiting for a decision'), ('asked', 'Waiting for an answer'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('responded', 'Answered by a person'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn'), ('superseded', 'Superseded'), ('used', 'Approved and used')], default='pending', max_length=12)),
                ('version', models.PositiveIntegerField(default=1)),
                ('supersedes', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='superseded_by', to='approvals.approval')),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('runs_at', models.DateTimeField(blank=True, help_text='Until then the decision can be undone.', null=True)),
                ('use_by', models.DateTimeField(blank=True, null=True)),
                ('paused_seconds', models.PositiveIntegerField(default=0, help_text='How long questions have stopped its clock.')),
                ('used_at', models.DateTimeField(blank=True, help_text='When the decision took effect.', null=True)),
                ('groups', models.ManyToManyField(blank=True, to='auth.group')),
            ],
            options={
                'ordering': ['-created_at'],
                'permissions': [('decide_approval', 'Can decide approvals')],
                'indexes': [models.Index(fields=['state', 'expires_at', 'id'], name='approval_inbox'), models.Index(fields=['state', '-decided_at'], name='approval_decided'), models.Index(fields=['tool', '-created_at'], name='approval_alike')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['pending', 'asked', 'approved'])), fields=('execution_id',), name='approval_one_open_per_call', violation_error_message='A call has one open approval at most.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['approved', 'used']), _negated=True), models.Q(('decided_at__isnull', False), ('runs_at__isnull', False), ('use_by__isnull', False), models.Q(('final_digest', ''), _negated=True)), _connector='OR'), name='approval_approved_is_bound', violation_error_message='An approved request is bound to exact arguments and a time.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['rejected', 'responded']), _negated=True), models.Q(('decided_at__isnull', False), ('runs_at__isnull', False)), _connector='OR'), name='approval_decided_has_times', violation_error_message='A decided request says when it was decided and when that takes effect.'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'used'), _negated=True), ('used_at__isnull', False), _connector='OR'), name='approval_used_has_time', violation_error_message='A used approval says when it was used.'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['pending', 'asked']), _negated=True), ('used_at__isnull', True), _connector='OR'), name='approval_pending_is_unused', violation_error_message='A pending request has not been used.')],
            },
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='approvals.approval')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('customer', models.CharField(blank=True, help_text='The customer who confirmed or declined.', max_length=200)),
                ('type', models.CharField(choices=[('approve', 'Approve'), ('edit', 'Approve with changes'), ('reject', 'Reject'), ('respond', "Respond in the tool's place")], max_length=10)),
                ('arguments_text', models.TextField(blank=True)),
                ('message', models.TextField(blank=True)),
                ('stop_run', models.BooleanField(default=False)),
                ('approval_version', models.PositiveIntegerField()),
                ('action_digest', models.CharField(max_length=64)),
                ('view_digest', models.CharField(max_length=64)),
                ('via', models.CharField(max_length=20)),
                ('assurance', models.CharField(blank=True, help_text='How the person had shown anew who they are, where that was asked.', max_length=20)),
                ('decided_at', models.DateTimeField()),
                ('undone_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['decided_at'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('undone_at__isnull', True)), fields=('approval', 'user'), name='decision_one_per_person', violation_error_message='A person decides once about a request.'), models.UniqueConstraint(condition=models.Q(('undone_at__isnull', True), ('user__isnull', True)), fields=('approval',), name='decision_one_of_customer', violation_error_message='A customer answers once.'), models.CheckConstraint(condition=models.Q(models.Q(('customer', ''), ('user__isnull', False)), models.Q(('user__isnull', True), models.Q(('customer', ''), _negated=True)), _connector='OR'), name='decision_has_somebody', violation_error_message="A decision is a person's, or a customer's.")],
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
                ('answer_by', models.DateTimeField(help_text='When the clock goes on without an answer.')),
                ('answer', models.TextField(blank=True)),
                ('answerer', models.ForeignKey(blank=True, help_text='The person who answered. Empty: the agent did.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('closed_at', models.DateTimeField(blank=True, help_text='When it was answered, or its time was up.', null=True)),
            ],
            options={
                'ordering': ['asked_at'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('closed_at__isnull', True)), fields=('approval',), name='question_one_open_per_approval', violation_error_message='One question about a request is open at a time.'), models.CheckConstraint(condition=models.Q(('answer', ''), ('closed_at__isnull', False), _connector='OR'), name='question_answered_is_closed', violation_error_message='An answered question is closed.')],
            },
        ),
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='claim', to='approvals.approval')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='claims', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='claims', to='auth.group')),
                ('until', models.DateTimeField(blank=True, help_text='When the lease runs out. Empty: it was handed over, and stays.', null=True)),
                ('handed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('note', models.CharField(blank=True, help_text='What who handed it over wants to be known.', max_length=300)),
                ('claimed_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['-claimed_at'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('group__isnull', True), ('user__isnull', False)), models.Q(('group__isnull', False), ('user__isnull', True)), _connector='OR'), name='claim_is_somebodys', violation_error_message='A claim is that of one person or one group.'), models.CheckConstraint(condition=models.Q(('until__isnull', False), ('handed_by__isnull', False), _connector='OR'), name='claim_ends_or_was_handed', violation_error_message="A claim of one's own runs out; only what was handed over stays.")],
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
                'constraints': [models.CheckConstraint(condition=models.Q(('user', models.F('deputy')), _negated=True), name='absence_has_another', violation_error_message='Nobody stands in for themselves.'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('since'))), name='absence_ends_after_it_begins', violation_error_message='An absence ends after it begins.')],
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
                ('body', models.TextField(help_text='The canonical text that was hashed. The other columns repeat parts of it.')),
                ('previous_hash', models.CharField(max_length=64)),
                ('hash', models.CharField(max_length=64)),
            ],
            options={
                'ordering': ['chain', 'seq'],
                'indexes': [models.Index(fields=['-at', '-id'], name='event_latest')],
                'constraints': [models.UniqueConstraint(fields=('chain', 'seq'), name='event_one_per_place', violation_error_message='Two events cannot stand at one place of a chain.')],
            },
        ),
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.SlugField(max_length=80, unique=True)),
                ('kind', models.CharField(max_length=20)),
                ('config', models.JSONField(blank=True, default=dict, help_text="What the kind needs, as in {'to': ['a@b.example']}.")),
                ('active', models.BooleanField(default=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='Told about requests these groups may decide. Empty means every request.', to='auth.group')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.UUIDField(default=approvals.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='approvals.approval')),
                ('kind', models.CharField(choices=[('waiting', 'A request waits'), ('handed', 'A request was handed to me'), ('due_soon', 'A request of mine is due soon'), ('call_failed', 'A call that I approved failed'), ('answered', 'My question was answered')], default='waiting', max_length=12)),
                ('channel', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='approvals.channel')),
                ('user', models.ForeignKey(blank=True, help_text='Told by mail, as their own settings say.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('sent', 'Sent'), ('failed', 'Failed')], default='queued', max_length=10)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('error', models.TextField(blank=True)),
                ('created_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-created_at'],
                'indexes': [models.Index(fields=['state', 'created_at'], name='notification_queue')],
                'constraints': [models.UniqueConstraint(fields=('approval', 'channel'), name='notification_once_per_channel', violation_error_message='A channel is told once about a request.'), models.UniqueConstraint(fields=('approval', 'user', 'kind'), name='notification_once_per_person', violation_error_message='A person is told once of one thing about a request.'), models.CheckConstraint(condition=models.Q(models.Q(('channel__isnull', False), ('user__isnull', True)), models.Q(('channel__isnull', True), ('user__isnull', False)), _connector='OR'), name='notification_is_for_somebody', violation_error_message='A notification goes over one channel or to one person.')],
            },
        ),
        migrations.RunPython(install, remove),
    ]
