import 'reflect-metadata';
import { MikroOrmModule } from '@mikro-orm/nestjs';
import {
  Body,
  Controller,
  Get,
  Headers,
  HttpCode,
  Inject,
  Injectable,
  Module,
  Param,
  Post,
  Res,
  Scope,
} from '@nestjs/common';
import { NestFactory, REQUEST } from '@nestjs/core';
import { EventLog, MikroOrmSessionService, type Message } from 'adk-mikro-orm';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { AdkModule } from './adk-module.js';
import { appName, ask } from './agent.js';
import { eventStream } from './event-stream.js';
import config from './mikro-orm.config.js';
import { send } from './send.js';

/** Created for each request, which says whose sessions they are. */
@Injectable({ scope: Scope.REQUEST })
class Conversations {
  constructor(
    @Inject(REQUEST) private readonly request: IncomingMessage,
    private readonly sessionService: MikroOrmSessionService,
    private readonly log: EventLog,
  ) {}

  ask(sessionId: string, text: string): Promise<Message[]> {
    return ask(this.sessionService, this.key(sessionId), text);
  }

  events(sessionId: string, lastEventId?: string): Response {
    return eventStream(this.log, this.key(sessionId), lastEventId);
  }

  private key(sessionId: string) {
    // Instead of your guard, which adds the user to the request.
    return { appName, userId: String(this.request.headers['x-user'] ?? 'ada'), sessionId };
  }
}

@Controller('sessions')
class SessionsController {
  constructor(private readonly conversations: Conversations) {}

  @Post(':id/messages')
  @HttpCode(200)
  ask(@Param('id') id: string, @Body('text') text: string): Promise<Message[]> {
    return this.conversations.ask(id, text);
  }

  @Get(':id/events')
  events(@Param('id') id: string, @Headers('last-event-id') last: string | undefined, @Res() response: ServerResponse) {
    return send(this.conversations.events(id, last), response);
  }
}

@Controller('health')
class HealthController {
  constructor(private readonly sessionService: MikroOrmSessionService) {}

  @Get()
  async check() {
    await this.sessionService.getAppState({ appName }); // the server answers, and has our tables
    return { status: 'ok' };
  }
}

@Module({
  imports: [MikroOrmModule.forRoot(config), AdkModule],
  controllers: [SessionsController, HealthController],
  providers: [Conversations],
})
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] });
app.enableShutdownHooks(); // on SIGTERM runs that are under way end first; the module closes the ORM
await app.listen(Number(process.env.PORT ?? 8080));
console.log('listening', (app.getHttpServer() as { address(): unknown }).address());
